// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/same_schedules.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/check.hpp>

namespace fsdp {

void require_same_schedules(const comm::Ranks& ranks, std::span<const sharding::Schedule> schedules) {
  if (ranks.size() == 1) return;
  std::vector<std::uint64_t> mine, all(schedules.size() * static_cast<std::size_t>(ranks.size()));
  for (const sharding::Schedule& schedule : schedules) mine.push_back(sharding::digest_of(schedule));
  ranks.gather_bytes(std::as_bytes(std::span<const std::uint64_t>(mine)), std::as_writable_bytes(std::span(all)),
                     {"schedules"});
  for (std::size_t i = 0; i < all.size(); ++i)
    require<InputError>(all[i] == all[i % mine.size()], "sharding: rank ", i / mine.size(),
                        " has another schedule than rank 0; a strategy's rules or schedule must depend on nothing but "
                        "the problem, and its numbers must be the same on every rank");
}

}  // namespace fsdp
