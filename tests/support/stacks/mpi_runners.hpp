// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks of the MPI tests, in float. Each runs on all processes of the program and ignores options.ranks.
#pragma once

#include <optional>
#include <string_view>

#include <support/stack_runner.hpp>
#include <support/stacks/run_time.hpp>

namespace fsdp::test {

extern const RunTimeStacks mpi_stacks;

inline RunResults run_mpi(std::string_view strategy, const RunOptions& options,
                          std::optional<buffer::AnyLayout> layout = {}) {
  RunOptions chosen = options;
  chosen.sharding = strategy;
  chosen.layout = layout;
  return mpi_stacks(chosen);
}

}  // namespace fsdp::test
