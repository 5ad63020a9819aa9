// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/runners.hpp>
#include <support/stacks/threads_run.hpp>

namespace fsdp::test {

Runners strategy_types() {
  return {{"fsdp2", run_on_threads<FullyShard<>>},
          {"fsdp2:no-reshard", run_on_threads<FullyShard<ReshardAfterForward::no>>},
          {"fsdp2:K", run_on_threads<FullyShard<ReshardAfterForward::to_group>>},
          {"zero1", run_on_threads<Zero1>},
          {"zero2", run_on_threads<Zero2>},
          {"zero3", run_on_threads<Zero3>},
          {"hybrid:K", run_on_threads<HybridShard<FullyShard<>>>},
          {"hybrid:K:full", run_on_threads<HybridShard<FullyShard<>, OptimizerAcross::sharded>>}};
}

}  // namespace fsdp::test
