// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks of the MPI tests, in float: each runs on all processes of the program, whatever options.ranks says.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <fsdp/core/error.hpp>

#include <support/stack_runner.hpp>

namespace fsdp::test {

RunResults run_mpi_fsdp2(const RunOptions& options);
RunResults run_mpi_fsdp2_no_reshard(const RunOptions& options);
RunResults run_mpi_fsdp2_group(const RunOptions& options);
RunResults run_mpi_hybrid(const RunOptions& options);
RunResults run_mpi_hybrid_full(const RunOptions& options);
RunResults run_mpi_zero1(const RunOptions& options);
RunResults run_mpi_zero2(const RunOptions& options);
RunResults run_mpi_zero3(const RunOptions& options);
RunResults run_mpi_replicated(const RunOptions& options);
RunResults run_mpi_run_time_sharded(const RunOptions& options);

/// With a layout, on the stack whose strategy is chosen at run time.
inline RunResults run_mpi(std::string_view strategy, const RunOptions& options,
                          cli::LayoutChoice layout = cli::LayoutChoice::own) {
  static const std::map<std::string, RunResults (*)(const RunOptions&)> compiled = {
      {"fsdp2", run_mpi_fsdp2},           {"fsdp2:no-reshard", run_mpi_fsdp2_no_reshard},
      {"fsdp2:K", run_mpi_fsdp2_group},   {"zero1", run_mpi_zero1},
      {"zero2", run_mpi_zero2},           {"zero3", run_mpi_zero3},
      {"hybrid:K", run_mpi_hybrid},       {"hybrid:K:full", run_mpi_hybrid_full},
      {"replicated", run_mpi_replicated},
  };
  RunOptions chosen = options;
  chosen.sharding = cli::parse_sharding(strategy);
  chosen.sharding.layout = layout;
  if (layout != cli::LayoutChoice::own) return run_mpi_run_time_sharded(chosen);
  const auto found = compiled.find(cli::kind_name(chosen.sharding));
  require<InputError>(found != compiled.end(), "no MPI stack of the tests is called '", strategy, "'");
  return found->second(chosen);
}

}  // namespace fsdp::test
