// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/strategy.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/scheduler.hpp>

namespace fsdp::sharding {
namespace {

void check(const Rules& rules) {
  require<InputError>(rules.prefetch_depth >= 0, "sharding: a strategy gathers ", rules.prefetch_depth,
                      " computations ahead (Rules::prefetch_depth); give at least 0");
  require<InputError>(rules.live_bound >= 0, "sharding: a bound of ", rules.live_bound,
                      " live elements (Rules::live_bound); give 0 for no bound");
}

}  // namespace

Schedule schedule_from(const Rules& rules, const Problem& problem) {
  check(rules);
  return make_schedule(rules, problem);
}

Schedule schedule_of_groups(const Rules& rules, const Problem& problem) {
  check(rules);
  return make_schedule_of_groups(rules, problem);
}

}  // namespace fsdp::sharding
