// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks in which tests train tests/support/residual_net.hpp.
#pragma once

#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>

#include <support/residual_net.hpp>

namespace fsdp::test {

/// A network under one strategy, with an optimizer chosen at run time; AdamW by default.
template <class Sharding, class Precision = Fp32>
using Net = Sharded<NetStack<Sharding, Precision>, optim::RunTimeOptimizer>;

/// A network with the initial weights of seed 1.
template <class Sharding, class Precision = Fp32>
struct Initialized : Net<Sharding, Precision> {
  using Base = Net<Sharding, Precision>;
  Initialized(Comm& communicator, const std::vector<Unit>& units, const Sharding& strategy,
              const typename Base::Settings& settings = {})
      : Base(communicator, units, strategy, settings) {
    this->initialize(1);
  }
};

/// Whole tensors by name.
using Whole = std::map<std::string, net::Values>;

/// Strategies that shard over all ranks.
inline std::vector<RunTimeAny> sharded_strategies() {
  return {{.strategy = FullyShard<>{}},
          {.strategy = FullyShard<ReshardAfterForward::no>{.prefetch_depth = 2}},
          {.strategy = Zero3{.persistence_threshold = net::width}},
          {.strategy = Zero2{}},
          {.strategy = Zero1{}}};
}

/// Calls body(communicator) on each of `ranks` ranks, with checks of collectives enabled.
inline void on_ranks(int ranks, FunctionRef<void(Comm&)> body) { Comm::run(ranks, {.checks = true}, body); }

/// The same; returns the result of body(communicator) on rank 0.
template <class Body>
auto of_first_rank(int ranks, const Body& body) {
  std::invoke_result_t<Body, Comm&> found{};
  on_ranks(ranks, [&](Comm& communicator) {
    auto mine = body(communicator);
    if (communicator.rank() == 0) found = std::move(mine);
  });
  return found;
}

}  // namespace fsdp::test
