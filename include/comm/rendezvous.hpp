// SPDX-License-Identifier: Apache-2.0
/// @file
/// TCP rendezvous: rank 0 sends a few bytes to all other processes, before any communicator exists.
///
/// Messages begin with a magic number and contain the numbers of ranks and bytes, so that processes of other jobs are
/// rejected. Wrong settings and a missed deadline throw InputError.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

namespace fsdp::comm {

/// A process's rank and address in its job, as its launcher specifies them.
struct JobPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  ///< rank among the job's processes on this machine
  int local_size = 1;
  std::string address = "";  ///< address of rank 0's machine; empty in a job of one rank
  int port = 0;

  friend bool operator==(const JobPlace&, const JobPlace&) = default;
};

/// Returns whether RANK or WORLD_SIZE is set, as it is under torchrun.
bool launched_by_torchrun();

/// Reads the place from RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE (default: LOCAL_RANK + 1), MASTER_ADDR and
/// MASTER_PORT; the last two are needed only for several ranks. Returns a job of one rank if neither RANK nor
/// WORLD_SIZE is set, and throws InputError if another launcher started several processes. Throws InputError if a
/// variable is missing, is not a number or contradicts another. If torchrun's own agent listens at MASTER_PORT
/// (TORCHELASTIC_USE_AGENT_STORE is True), the port is MASTER_PORT + 1.
JobPlace torchrun_place();

/// Throws InputError if this machine has fewer devices than ranks.
void require_devices(const JobPlace& place, int devices);

/// One rank's part in a rendezvous: its rank, the number of ranks, and the longest wait for the others.
struct Meeting {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds deadline{20'000};
};

/// Copies rank 0's `bytes` to all ranks. Rank 0 listens at `port` on all its addresses; the others connect to
/// `address`. Throws InputError at the deadline.
void rendezvous_over_tcp(const Meeting& meeting, const std::string& address, int port, std::span<std::byte> bytes);

}  // namespace fsdp::comm
