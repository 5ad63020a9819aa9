// SPDX-License-Identifier: Apache-2.0
/// @file
/// The backends whose stacks the benches time, as functions that do not depend on the stack's type.
///
/// To add a backend, add a source file such as on_mpi.cpp, and its function here and in main.cpp.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "options.hpp"

namespace fsdp::bench {

/// The benches of one stack. Each runs on all ranks, prints its lines and returns the exit status.
struct StackBenches {
  bool (*takes)(const cli::ShardingChoice&) = nullptr;
  cli::PrecisionChoice precision = {};
  int (*step)(const BenchOptions&) = nullptr;
  int (*residency)(const BenchOptions&) = nullptr;  ///< null if the stack has no fsdp2
  int (*generate)(const BenchOptions&) = nullptr;
  int (*load)(const BenchOptions&) = nullptr;
};

struct Backend {
  std::string comm;  ///< value of --comm that selects the backend, without a number of ranks
  std::vector<StackBenches> stacks;
  int (*measure_comm)(const BenchOptions&) = nullptr;
  /// Starts or joins the ranks and throws the error on all of them, so that it is printed only once.
  int (*fail)(const std::exception_ptr&) = nullptr;
};

Backend on_threads();
Backend on_mpi();

}  // namespace fsdp::bench
