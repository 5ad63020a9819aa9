// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks of a backend whose strategies are chosen at run time, as in the program. Two such stacks replace one
/// stack per strategy; sharding/any_strategy_test.cpp shows that they behave like the strategy types.
#pragma once

#include <variant>

#include <support/any_strategy.hpp>
#include <support/stack_runner.hpp>

namespace fsdp::test {

struct RunTimeStacks {
  using Run = RunResults (*)(const RunOptions&);
  Run any, full;

  /// Runs the strategy of options.sharding.
  RunResults operator()(const RunOptions& options) const {
    return std::holds_alternative<RunTimeAny>(any_strategy(options.sharding)) ? any(options) : full(options);
  }
};

extern const RunTimeStacks threads_stacks;
extern const RunTimeStacks queued_stacks;  ///< threads that share an asynchronous device
extern const RunTimeStacks nccl_stacks;    ///< the same over a fake NCCL

}  // namespace fsdp::test
