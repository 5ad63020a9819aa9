// SPDX-License-Identifier: Apache-2.0
/// @file
/// The cores that a rank may use, from affinity masks, the launcher's binding and control groups' quotas, compared with
/// the cores that the job requested. Reads the launcher's environment variables and OMP_NUM_THREADS.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tessera/comm/ranks.hpp>

namespace fsdp::comm {

/// A number of cores, and the number of ranks that share them.
struct SharedCores {
  std::int64_t cores = 1;
  std::int64_t ranks = 1;
  friend bool operator==(const SharedCores&, const SharedCores&) = default;
};

/// Returns the cores that `rank` may run on, and how many ranks share them. `masks`: one per rank, as
/// device::affinity_mask returns them. `hosts`: one per rank; empty if all ranks are on one host. `quota`: number of
/// cores that control groups allow all ranks of its host together; used if it gives a rank fewer cores than its mask.
SharedCores shared_cores(std::span<const std::string> masks, std::span<const std::string> hosts, std::size_t rank,
                         std::optional<int> quota);

/// Cores and threads of a process as specified by environment variables; 0 if no variable specifies them.
struct StatedCores {
  std::int64_t cores = 0;          ///< number of cores that the job requested for each process
  std::string_view variable = {};  ///< name of the variable that specifies `cores`, such as "SLURM_CPUS_PER_TASK"
  std::int64_t threads = 0;        ///< number of threads of each rank, from OMP_NUM_THREADS
  friend bool operator==(const StatedCores&, const StatedCores&) = default;
};

/// Reads the variables of Slurm, PBS and LSF. `processes_here`: number of the job's processes on this host, which share
/// the cores specified for the host; `processes`: number on all hosts.
StatedCores stated_cores(std::int64_t processes_here, std::int64_t processes);

/// Returns the number of threads of each rank if --threads is omitted: OMP_NUM_THREADS if it is set, else a rank's
/// share of the cores, but no more than its share of the cores that the job requested; at least 1.
std::int64_t default_threads(const SharedCores& has, const StatedCores& stated, std::int64_t ranks_of_process);

/// Exchanges the cores that the ranks run on, for cores_shared_by and rank_threads. Collective; `launch` calls it
/// before anything else.
void agree_on_cores(const Ranks& ranks);

/// Returns a warning with a remedy if agree_on_cores, for that many ranks, found that a process may run on fewer cores
/// than its job requested, or ranks with `threads` threads each have fewer cores than threads (0: not compared).
/// Returns an empty string if neither is the case, or if this process has already returned a warning.
std::string cores_warning(int ranks, std::int64_t threads);

/// Returns agree_on_cores' result for that many ranks: the cores of the rank with the fewest, since ranks do equal work
/// and wait for one another. If agree_on_cores was not called, returns the cores of this process, shared by all ranks
/// of the machine.
SharedCores cores_shared_by(int ranks);

/// Returns how many of the ranks run on this machine and share its cores: the launcher's number if it sets one, else
/// all of them.
int ranks_on_this_machine(int ranks);

/// Returns the number of threads of each rank: `asked` if above 0, else this machine's cores divided by its number of
/// ranks, at least 1.
std::int64_t threads_per_rank(std::int64_t asked, std::int64_t cores, std::int64_t ranks_here);

/// Returns the number of threads of each of `ranks` ranks: `asked` if above 0, else the smallest default_threads of any
/// rank, as agree_on_cores found it for that number of ranks; if it was not called, a rank's share of this process's
/// cores, at least 1.
int rank_threads(std::int64_t asked, int ranks);

/// Returns the result that rank_threads will have in a job of `ranks` ranks on this machine, for a program that starts
/// no ranks.
int planned_threads(std::int64_t asked, int ranks);

}  // namespace fsdp::comm
