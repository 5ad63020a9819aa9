// SPDX-License-Identifier: Apache-2.0
/// @file
/// A row of the program's table of stacks: what one compiled stack can do.
#pragma once

#include <string>
#include <string_view>

#include <fsdp/train/commands.hpp>
#include <fsdp/train/options.hpp>

#include "bench/collectives.hpp"
#include "bench/options.hpp"
#include "bench/step.hpp"

namespace fsdp::stacks {

/// A compiled stack: its short names and what it can do. One type of strategy may stand for several kinds.
struct CompiledStack {
  std::string sharding;  ///< all its kinds
  bool (*takes)(const train::ShardingChoice&) = nullptr;
  std::string_view comm;
  std::string_view precision;
  int (*train)(const train::TrainOptions&) = nullptr;
  int (*evaluate)(const train::EvalOptions&) = nullptr;
  int (*generate)(const train::GenerateOptions&) = nullptr;
  // Null where the device's memory is not the host's: floors and rivals are the CPU's.
  int (*bench_step)(const bench::BenchOptions&) = nullptr;
  int (*bench_comm)(const bench::BenchOptions&) = nullptr;
};

template <class Model>
int bench_step(const bench::BenchOptions& options) {
  return bench::measure_step<Model>(options, train::tiling_of<typename Model::Stack::Tiling>(options.stack));
}

template <class Model>
CompiledStack compiled_stack() {
  using Stack = typename Model::Stack;
  CompiledStack stack{
      .sharding = train::sharding_kinds<typename Stack::Sharding>(),
      .takes = train::takes<typename Stack::Sharding>,
      .comm = Stack::Comm::name,
      .precision = Stack::Precision::name,
      .train = train::train<Model>,
      .evaluate = train::evaluate<Model>,
      .generate = train::generate<Model>,
  };
  if constexpr (Stack::Device::host_memory) {
    stack.bench_step = bench_step<Model>;
    stack.bench_comm = bench::measure_comm<typename Stack::Comm>;
  }
  return stack;
}

}  // namespace fsdp::stacks
