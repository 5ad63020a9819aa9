// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/launch/cores.hpp>

#include <algorithm>
#include <mutex>
#include <vector>

#include <tessera/comm/agreement.hpp>
#include <tessera/comm/launch/launch.hpp>
#include <tessera/fsdp/device/cpu.hpp>

#include "../../fsdp/core/control_groups.hpp"

namespace fsdp::comm {
namespace {

bool overlap(const std::string& a, const std::string& b) {
  for (std::size_t core = 0; core < std::min(a.size(), b.size()); ++core)
    if (a[core] == '1' && b[core] == '1') return true;
  return false;
}

bool has_less(const SharedCores& a, const SharedCores& b) { return a.cores * b.ranks < b.cores * a.ranks; }

/// What agree_on_cores found. Ranks that are threads of this process write it concurrently, with equal values.
struct Agreed {
  std::mutex mutex;
  int world = 0;
  SharedCores shared;
};

Agreed& agreed() {
  static Agreed state;
  return state;
}

}  // namespace

SharedCores shared_cores(std::span<const std::string> masks, std::span<const std::string> hosts, std::size_t rank,
                         std::optional<int> quota) {
  const std::string& mine = masks[rank];
  SharedCores by_mask{.cores = std::max<std::int64_t>(std::ranges::count(mine, '1'), 1), .ranks = 0};
  std::int64_t ranks_here = 0;
  for (std::size_t other = 0; other < masks.size(); ++other) {
    if (!hosts.empty() && hosts[other] != hosts[rank]) continue;
    ++ranks_here;
    if (other == rank || overlap(masks[other], mine)) ++by_mask.ranks;
  }
  const SharedCores by_quota{.cores = quota.value_or(0), .ranks = ranks_here};
  return quota && has_less(by_quota, by_mask) ? by_quota : by_mask;
}

void agree_on_cores(const Ranks& ranks) {
  const std::vector<std::string> masks = gather_texts(ranks, device::affinity_mask(), "affinity masks");
  const SharedCores mine[] = {
      shared_cores(masks, ranks.monitor().hosts, static_cast<std::size_t>(ranks.rank()), quota_of_cores())};
  std::vector<SharedCores> all(masks.size());
  ranks.gather_bytes(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), {"shared cores"});
  const std::lock_guard lock(agreed().mutex);
  agreed().world = ranks.size();
  agreed().shared = *std::ranges::min_element(all, has_less);
}

SharedCores cores_shared_by(int ranks) {
  {
    const std::lock_guard lock(agreed().mutex);
    if (agreed().world == ranks) return agreed().shared;
  }
  return {.cores = device::available_cores(), .ranks = ranks_on_this_machine(ranks)};
}

int ranks_on_this_machine(int ranks) {
  const int launched = launched_ranks_here();
  return launched > 0 ? launched : ranks;
}

std::int64_t threads_per_rank(std::int64_t asked, std::int64_t cores, std::int64_t ranks_here) {
  return asked > 0 ? asked : std::max<std::int64_t>(cores / std::max<std::int64_t>(ranks_here, 1), 1);
}

int rank_threads(std::int64_t asked, int ranks) {
  const SharedCores shared = cores_shared_by(ranks);
  return static_cast<int>(threads_per_rank(asked, shared.cores, shared.ranks));
}

}  // namespace fsdp::comm
