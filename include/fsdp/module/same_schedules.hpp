// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks whose schedules differ would wait for each other's collectives until the deadline: here they are told before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/sharding/check.hpp>

namespace fsdp {

/// Throws the same InputError on every rank unless all ranks have the same lists.
template <class Comm>
void require_same_schedules(Comm& communicator, std::span<const sharding::Schedule> schedules) {
  if (communicator.size() == 1) return;
  std::vector<std::uint64_t> mine, all(schedules.size() * static_cast<std::size_t>(communicator.size()));
  for (const sharding::Schedule& schedule : schedules) mine.push_back(sharding::digest_of(schedule));
  comm::gather_bytes(communicator, std::as_bytes(std::span<const std::uint64_t>(mine)),
                     std::as_writable_bytes(std::span(all)), {"schedules"});
  for (std::size_t i = 0; i < all.size(); ++i)
    require<InputError>(all[i] == all[i % mine.size()], "sharding: rank ", i / mine.size(),
                        " has another schedule than rank 0; a strategy's rules or schedule must depend on nothing but "
                        "the problem, and its numbers must be the same on every rank");
}

}  // namespace fsdp
