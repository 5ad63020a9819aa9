// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks over Threads that the tests compile, each with one strategy. Stacks of one kind are in one file, because
/// they share most of the headers and templates.
#pragma once

#include <map>
#include <string>

#include <support/stack_runner.hpp>

namespace fsdp::test {

/// Functions that run a stack, by the kind of its strategy ("hybrid:K:full") and the suffixes of its name.
using Runners = std::map<std::string, RunResults (*)(const RunOptions&)>;

Runners strategy_types();  ///< strategies without suffixes
Runners variants();        ///< other precisions, layouts and memory; and "replicated"

/// Runs a strategy of a type that is defined by its placements.
RunResults run_by_placement(const RunOptions& options);
RunResults run_offload(const RunOptions& options);  ///< RunTimeAny with the optimizer in host memory
RunResults run_watched(const RunOptions& options);
RunResults run_alternating(const RunOptions& options);

}  // namespace fsdp::test
