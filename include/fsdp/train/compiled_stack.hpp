// SPDX-License-Identifier: Apache-2.0
/// @file
/// A row of a program's table of stacks: what one compiled stack can do.
#pragma once

#include <string_view>

#include <fsdp/train/options.hpp>

namespace fsdp::train {

/// A compiled stack: its short names and what it can do.
struct CompiledStack {
  std::string_view sharding;
  std::string_view comm;
  std::string_view precision;
  int (*train)(const TrainOptions&) = nullptr;
  int (*evaluate)(const EvalOptions&) = nullptr;
  int (*generate)(const GenerateOptions&) = nullptr;
  // Null where the device's memory is not the host's: floors and rivals are the CPU's.
  int (*bench_step)(const BenchOptions&) = nullptr;
  int (*bench_comm)(const BenchOptions&) = nullptr;
};

}  // namespace fsdp::train
