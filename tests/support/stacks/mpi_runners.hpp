// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks of the MPI tests, in float: each runs on all processes of the program, whatever options.ranks says.
#pragma once

#include <string_view>

#include <support/stack_runner.hpp>
#include <support/stacks/run_time.hpp>

namespace fsdp::test {

extern const RunTimeStacks mpi_stacks;

inline RunResults run_mpi(std::string_view strategy, const RunOptions& options,
                          cli::LayoutChoice layout = cli::LayoutChoice::own) {
  RunOptions chosen = options;
  chosen.sharding = cli::parse_sharding(strategy);
  chosen.sharding.layout = layout;
  return mpi_stacks(chosen);
}

}  // namespace fsdp::test
