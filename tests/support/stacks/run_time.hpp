// SPDX-License-Identifier: Apache-2.0
/// @file
/// A backend's stacks whose strategies are chosen at run time: a type for each set of placements. Four stacks run what
/// takes a stack for each strategy otherwise; RunTimeStrategies (sharding/layouts_test.cpp) shows that they give the
/// bits of the types that they stand for.
#pragma once

#include <support/any_strategy.hpp>
#include <support/stack_runner.hpp>

namespace fsdp::test {

struct RunTimeStacks {
  using Run = RunResults (*)(const RunOptions&);
  Run sharded, grouped, full, replicated;

  /// The strategy of options.sharding.
  RunResults operator()(const RunOptions& options) const {
    const Run runs[] = {sharded, grouped, full, replicated};  // in the order of AnyStrategy
    return runs[any_strategy(options.sharding).index()](options);
  }
};

extern const RunTimeStacks threads_stacks;
extern const RunTimeStacks queued_stacks;  ///< threads that share an asynchronous device
extern const RunTimeStacks nccl_stacks;    ///< the same over a double of NCCL

}  // namespace fsdp::test
