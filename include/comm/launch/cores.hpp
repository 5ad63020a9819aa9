// SPDX-License-Identifier: Apache-2.0
/// @file
/// The cores that a rank has, from affinity masks, the launcher's binding and control groups' quotas.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

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

/// Ranks tell each other where they run, for cores_shared_by. Collective; `launch` calls it before anything else.
void agree_on_cores(const Ranks& ranks);

/// Returns agree_on_cores' result for that many ranks: the cores of the rank with the fewest, since ranks do equal work
/// and wait for one another. Without it, the cores of this process, shared by all ranks of the machine.
SharedCores cores_shared_by(int ranks);

/// Returns how many of the ranks run on this machine and share its cores: the launcher's number, or else all of them.
int ranks_on_this_machine(int ranks);

/// Returns the threads of each rank: `asked` if above 0, else this machine's cores divided by its ranks, at least 1.
std::int64_t threads_per_rank(std::int64_t asked, std::int64_t cores, std::int64_t ranks_here);

/// Returns the threads of each of `ranks` ranks: `asked` if above 0, else its part of cores_shared_by, at least 1.
int rank_threads(std::int64_t asked, int ranks);

}  // namespace fsdp::comm
