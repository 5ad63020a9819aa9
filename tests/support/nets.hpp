// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks in which tests train tests/support/residual_net.hpp.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tessera/fsdp/training/run_time_optimizer.hpp>

#include <support/residual_net.hpp>

namespace fsdp::test {

/// A network under one strategy, with an optimizer that is chosen at run time: AdamW by default.
template <class Sharding, class Precision = Fp32>
using Net = Sharded<NetStack<Sharding, Precision>, optim::RunTimeOptimizer>;

/// Strategies that shard over all ranks.
inline std::vector<RunTimeAny> sharded_strategies() {
  return {{.strategy = FullyShard<>{}},
          {.strategy = FullyShard<ReshardAfterForward::no>{.prefetch_depth = 2}},
          {.strategy = Zero3{.persistence_threshold = net::width}},
          {.strategy = Zero2{}},
          {.strategy = Zero1{}}};
}

/// Calls body(communicator) on each of so many ranks, whose collectives are compared.
template <class Body>
void on_ranks(int ranks, const Body& body) {
  Comm::run(ranks, {.checks = true}, [&](Comm& communicator) { body(communicator); });
}

}  // namespace fsdp::test
