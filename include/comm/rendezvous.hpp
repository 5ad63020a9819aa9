// SPDX-License-Identifier: Apache-2.0
/// @file
/// TCP rendezvous: rank 0 sends a few bytes to all other processes, before any communicator exists, once all have come
/// and none has reported a problem.
///
/// Messages begin with a magic number and contain the numbers of ranks and bytes, so that processes of other jobs are
/// rejected. Wrong settings and a missed deadline throw InputError.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include <tessera/comm/peer_watch.hpp>

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

/// Returns the index of a rank's device among the `devices` that its process sees: its local rank; 0 if the launcher
/// shows each process one device (CUDA_VISIBLE_DEVICES or SLURM_GPUS_PER_TASK is set). Throws InputError if this
/// machine has fewer devices than ranks.
int device_index(const JobPlace& place, int devices);
/// Returns the identity of a device for Meeting::device: its UUID, and NCCL_HOSTID if that is set. Ranks may share a
/// device on purpose if NCCL takes them for several hosts.
std::string device_identity(const std::string& uuid);
/// Binds the calling thread, and so the threads that it starts, to the cores of the NUMA node near the PCI device with
/// this address. Host memory that they allocate or touch first, pinned memory included, is on that node then. Returns
/// false and does nothing if the system reports no node, or the process is already bound to fewer cores than the
/// machine has: then the launcher has chosen them. `sys`: where sysfs is mounted.
bool bind_to_cores_near(const std::string& bus_id, const std::filesystem::path& sys = "/sys");
bool is_bound_near_device();  ///< whether bind_to_cores_near has bound the calling thread

/// One rank's part in a rendezvous.
struct Meeting {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds deadline{300'000};  ///< longest wait for the others at the start
  std::string problem = {};                     ///< why this rank cannot start; empty if it can
  std::string device = {};                      ///< identity of its device; empty: not compared with those of others
};

/// Copies rank 0's `bytes` to all ranks. Rank 0 listens at `port` on all its addresses; the others connect to
/// `address`. Throws InputError at the deadline, and with the same message on all ranks if a rank has a problem or two
/// have the same device. Returns the connections, which watch the ranks from now on; null for one rank.
std::shared_ptr<PeerWatch> rendezvous_over_tcp(const Meeting& meeting, const std::string& address, int port,
                                               std::span<std::byte> bytes);

}  // namespace fsdp::comm
