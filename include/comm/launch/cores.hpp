// SPDX-License-Identifier: Apache-2.0
/// @file
/// The cores that a rank has, from affinity masks, the launcher's binding and control groups' quotas, compared with
/// those that the launcher states. Reads the launcher's environment variables and OMP_NUM_THREADS.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tessera/comm/ranks.hpp>

namespace fsdp::comm {

/// Cores, and the ranks that run on them.
struct SharedCores {
  std::int64_t cores = 1;
  std::int64_t ranks = 1;
  friend bool operator==(const SharedCores&, const SharedCores&) = default;
};

/// Returns the cores that `rank` may run on, and how many ranks share them. `masks`: by rank, as device::affinity_mask
/// writes them. `hosts`: by rank; empty: one host. `quota`: cores that control groups allow to all ranks of its host;
/// it counts if it gives a rank less than its mask does.
SharedCores shared_cores(std::span<const std::string> masks, std::span<const std::string> hosts, std::size_t rank,
                         std::optional<int> quota);

/// What environment variables state about a process; 0 where none does.
struct StatedCores {
  std::int64_t cores = 0;          ///< that the job requested for each process
  std::string_view variable = {};  ///< that states them: "SLURM_CPUS_PER_TASK"
  std::int64_t threads = 0;        ///< OMP_NUM_THREADS: of each rank
  friend bool operator==(const StatedCores&, const StatedCores&) = default;
};

/// Reads the variables of Slurm, PBS and LSF. `processes_here`: processes of the job on this host, which share what is
/// stated for the host; `processes`: on all hosts.
StatedCores stated_cores(std::int64_t processes_here, std::int64_t processes);

/// Returns the threads of each rank where --threads is omitted: OMP_NUM_THREADS if it is set, else a rank's part of the
/// cores, but no more than its part of those that the job requested; at least 1.
std::int64_t default_threads(const SharedCores& has, const StatedCores& stated, std::int64_t ranks_of_process);

/// Ranks tell each other where they run, for cores_shared_by and rank_threads. Collective; `launch` calls it before
/// anything else.
void agree_on_cores(const Ranks& ranks);

/// Returns a warning with a remedy if, by agree_on_cores' result for that many ranks, a process may run on fewer cores
/// than its job requested, or ranks with `threads` threads each have fewer cores than threads (0: not compared). Empty
/// if neither holds, or if a warning was returned in this process before.
std::string cores_warning(int ranks, std::int64_t threads);

/// Returns agree_on_cores' result for that many ranks: the cores of the rank with the fewest, since ranks do equal work
/// and wait for one another. Without it, the cores of this process, shared by all ranks of the machine.
SharedCores cores_shared_by(int ranks);

/// Returns how many of the ranks run on this machine and share its cores: the launcher's number, or else all of them.
int ranks_on_this_machine(int ranks);

/// Returns the threads of each rank: `asked` if above 0, else this machine's cores divided by its ranks, at least 1.
std::int64_t threads_per_rank(std::int64_t asked, std::int64_t cores, std::int64_t ranks_here);

/// Returns the threads of each of `ranks` ranks: `asked` if above 0, else what agree_on_cores found for that many, the
/// default_threads of the rank with the fewest; without it, the rank's part of this process's cores, at least 1.
int rank_threads(std::int64_t asked, int ranks);

/// Returns what rank_threads will be in a job of so many ranks on this machine, for a program that starts none.
int planned_threads(std::int64_t asked, int ranks);

}  // namespace fsdp::comm
