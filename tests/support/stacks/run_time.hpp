// SPDX-License-Identifier: Apache-2.0
/// @file
/// A backend's stacks whose strategies are chosen at run time: a type for each set of placements. Four stacks run what
/// takes a stack for each strategy otherwise; RunTimeStrategies (sharding/layouts_test.cpp) shows that they give the
/// bits of the types that they stand for.
#pragma once

#include <tessera/fsdp/core/error.hpp>

#include <support/stack_runner.hpp>

namespace fsdp::test {

struct RunTimeStacks {
  using Run = RunResults (*)(const RunOptions&);
  Run sharded, grouped, full, replicated;

  /// The strategy and layout of options.sharding.
  RunResults operator()(const RunOptions& options) const { return of(options.sharding)(options); }

 private:
  Run of(const cli::ShardingChoice& choice) const {
    if (choice.kind == cli::ShardingChoice::Kind::replicated) return replicated;
    if (choice.full) return full;
    return choice.number > 0 ? grouped : sharded;
  }
};

extern const RunTimeStacks threads_stacks;
extern const RunTimeStacks queued_stacks;  ///< threads that share an asynchronous device
extern const RunTimeStacks nccl_stacks;    ///< the same over a double of NCCL

}  // namespace fsdp::test
