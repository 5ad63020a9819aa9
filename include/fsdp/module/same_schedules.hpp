// SPDX-License-Identifier: Apache-2.0
/// @file
/// A check that all ranks have the same schedules. Without it, ranks would wait for each other's collectives until the
/// deadline.
#pragma once

#include <span>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// Throws the same InputError on every rank unless all ranks have the same lists.
void require_same_schedules(const comm::Ranks& ranks, std::span<const sharding::Schedule> schedules);

}  // namespace fsdp
