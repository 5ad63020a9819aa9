// SPDX-License-Identifier: Apache-2.0
/// @file
/// How processes that know nothing of each other meet: a few bytes of rank 0 go to all others over TCP.
///
/// Strangers are refused: a message begins with a mark, and says how many ranks and bytes it is about. What is wrong
/// with what the user said, or nobody there by the deadline, is an InputError.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

namespace fsdp::comm {

/// Where a process stands in its job, as its launcher says.
struct JobPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  ///< among the job's processes of this machine
  int local_size = 1;
  std::string address = "";  ///< of rank 0's machine; empty in a job of one rank
  int port = 0;

  friend bool operator==(const JobPlace&, const JobPlace&) = default;
};

/// Whether torchrun, or somebody who sets the same variables, started this process.
bool launched_by_torchrun();

/// From RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT; one rank alone where none is set.
/// Throws InputError where some are missing, are no numbers or contradict each other. Where torchrun's own agent
/// listens at MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE is True), rank 0 takes the port after it.
JobPlace torchrun_place();

/// Throws InputError where a machine has fewer devices than ranks.
void require_devices(const JobPlace& place, int devices);

/// Rank `rank` of `size` waits at most so long for the others.
struct Meeting {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds deadline{20'000};
};

/// Rank 0 listens at the port, on all addresses; the others connect to `address`. bytes = rank 0's bytes.
void meet_over_tcp(const Meeting& meeting, const std::string& address, int port, std::span<std::byte> bytes);

}  // namespace fsdp::comm
