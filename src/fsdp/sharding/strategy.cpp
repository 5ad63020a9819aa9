// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/strategy.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/scheduler.hpp>

namespace fsdp::sharding {

Schedule schedule_from(const Rules& rules, const Problem& problem) {
  require<InputError>(rules.prefetch_depth >= 0, "sharding: a strategy gathers ", rules.prefetch_depth,
                      " computations ahead (Rules::prefetch_depth); give at least 0");
  require<InputError>(rules.live_bound >= 0, "sharding: a bound of ", rules.live_bound,
                      " live elements (Rules::live_bound); give 0 for no bound");
  return make_schedule(rules, problem);
}

}  // namespace fsdp::sharding
