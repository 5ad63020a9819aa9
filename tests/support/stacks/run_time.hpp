// SPDX-License-Identifier: Apache-2.0
/// @file
/// A backend's stacks whose strategies are chosen at run time, as the program's are. Two stacks run what takes a stack
/// for each strategy otherwise; sharding/any_strategy_test.cpp shows that they do what the types do that they stand
/// for.
#pragma once

#include <variant>

#include <support/any_strategy.hpp>
#include <support/stack_runner.hpp>

namespace fsdp::test {

struct RunTimeStacks {
  using Run = RunResults (*)(const RunOptions&);
  Run any, full;

  /// The strategy of options.sharding.
  RunResults operator()(const RunOptions& options) const {
    return std::holds_alternative<RunTimeAny>(any_strategy(options.sharding)) ? any(options) : full(options);
  }
};

extern const RunTimeStacks threads_stacks;
extern const RunTimeStacks queued_stacks;  ///< threads that share an asynchronous device
extern const RunTimeStacks nccl_stacks;    ///< the same over a double of NCCL

}  // namespace fsdp::test
