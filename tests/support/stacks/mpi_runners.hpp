// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks of the MPI tests, in float: each runs on all processes of the program, whatever options.ranks says.
#pragma once

#include <string_view>

#include <fsdp/core/error.hpp>

#include <support/stack_runner.hpp>

namespace fsdp::test {

RunResults run_mpi_fsdp2(const RunOptions& options);
RunResults run_mpi_fsdp2_no_reshard(const RunOptions& options);
RunResults run_mpi_zero1(const RunOptions& options);
RunResults run_mpi_zero2(const RunOptions& options);
RunResults run_mpi_zero3(const RunOptions& options);
RunResults run_mpi_replicated(const RunOptions& options);

inline RunResults run_mpi(std::string_view strategy, const RunOptions& options) {
  if (strategy == "fsdp2") return run_mpi_fsdp2(options);
  if (strategy == "fsdp2:no-reshard") return run_mpi_fsdp2_no_reshard(options);
  if (strategy == "zero1") return run_mpi_zero1(options);
  if (strategy == "zero2") return run_mpi_zero2(options);
  if (strategy == "zero3") return run_mpi_zero3(options);
  if (strategy == "replicated") return run_mpi_replicated(options);
  throw InputError(message("no MPI stack of the tests is called '", strategy, "'"));
}

}  // namespace fsdp::test
