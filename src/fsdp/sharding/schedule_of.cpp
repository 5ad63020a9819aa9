// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/schedule_of.hpp>

#include <tessera/fsdp/sharding/scheduler.hpp>

namespace fsdp::sharding {

Schedule schedule_from(const Rules& rules, const Problem& problem) { return make_schedule(rules, problem); }

}  // namespace fsdp::sharding
