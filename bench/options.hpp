// SPDX-License-Identifier: Apache-2.0
/// @file
/// The options of `tessera_bench NAME`, and the benches that do not need a stack.
///
/// To add a bench, add its function below, its name in main.cpp, its flags in options.cpp and its lines in
/// bench/README.md.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/flags/flags.hpp>
#include <tessera/trainer/flags/optimizer_choice.hpp>
#include <tessera/trainer/flags/options.hpp>

#include "../src/program/calibrate/rounds.hpp"
#include "../src/program/cli/stack_choice.hpp"

namespace fsdp::bench {

using calibrate::Rounds;

/// The options of all benches, with the defaults that `--help` prints. Each bench reads the options that its help
/// lists.
struct BenchOptions {
  std::string what = {};
  std::string model = {};  ///< model to use; empty: the sizes are given by the options below
  std::string text = "/usr/include/boost";
  std::int64_t hidden = 1024, intermediate = 0, layers = 4, heads = 16, kv_heads = 4;
  std::int64_t vocab = 0;  ///< 0: the default of the bench; the same for the options below
  std::int64_t head_dim = 0;
  std::int64_t seq_len = 0;
  std::int64_t parameters = 50'000'000;
  std::int64_t bytes = 0;
  std::int64_t repeats = 7;
  std::int64_t lora_rank = 0;
  double offload_inputs = 0;
  Ulysses sequence = {};
  bool table = false;
  bool dry_run = false;
  std::int64_t up_to = 8192;
  train::OptimizerChoice optimizer = {};
  cli::StackChoice stack = {};
  train::LaunchOptions launch = {};

  bool bf16() const { return stack.precision == cli::PrecisionChoice::bf16; }
  /// The number of threads of a bench without ranks.
  int threads() const;
};

void bind(train::FlagSet& flags, BenchOptions& options);
/// Throws InputError with a message about the first invalid value.
void check(const BenchOptions& options, const train::FlagSet& flags);

/// Each function prints the lines of one bench, as described under its name in bench/README.md.
/// @{
void measure_mlp(const BenchOptions& options, const train::FlagSet& flags);
int measure_mlp_table(const BenchOptions& options, const train::FlagSet& flags);  ///< `mlp --table`
void measure_attention(const BenchOptions& options, const train::FlagSet& flags);
void measure_head(const BenchOptions& options, const train::FlagSet& flags);
void measure_codec(const BenchOptions& options, const train::FlagSet& flags);
void measure_matmul(const BenchOptions& options, const train::FlagSet& flags);
void measure_optim(const BenchOptions& options, const train::FlagSet& flags);
void measure_tokenize(const BenchOptions& options, const train::FlagSet& flags);
void measure_plan(std::int64_t rounds);
/// @}

}  // namespace fsdp::bench
