// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of `tessera bench`: plain values, with the defaults that `--help` prints.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/trainer/flags/optimizer_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/flags/sequence_flag.hpp>

#include "stack_choice.hpp"

namespace fsdp::bench {

/// The options of all benches. Each bench reads those that its --help line names.
struct BenchOptions {
  std::string what = {};   ///< mlp, attention, head, step, generate, load, comm, matmul, optim or tokenize
  std::string model = {};  ///< step, generate, load: folder whose config.json gives the sizes; empty: the next options
  std::string text = "/usr/include/boost";  ///< tokenize
  std::int64_t hidden = 1024, intermediate = 0, layers = 4, heads = 16, kv_heads = 4;
  std::int64_t vocab = 0;                ///< 0: the command's own, and so below
  std::int64_t head_dim = 0;             ///< attention; 0: 64 and 128
  std::int64_t seq_len = 0;              ///< 0: the command's own
  std::int64_t parameters = 50'000'000;  ///< optim
  std::int64_t bytes = 0;                ///< comm: of each collective; 0: the command's own
  std::int64_t repeats = 7;              ///< the median is printed
  std::int64_t lora_rank = 0;            ///< step: also measure adapters of this rank, against the full step; 0: no
  double offload_inputs = 0;  ///< step: also measure this share of inputs in host memory, against kept ones; 0: no
  Ulysses sequence = {};      ///< step: how many ranks share each sequence; above 1, also measured against whole ones
  bool table = false;         ///< mlp: the published setting
  bool dry_run = false;       ///< mlp --table: only bytes, no times
  std::int64_t up_to = 8192;  ///< mlp --table: the longest sequence that is timed
  train::OptimizerChoice optimizer = {};  ///< step
  cli::StackChoice stack = {};
  train::LaunchOptions launch = {};

  friend bool operator==(const BenchOptions&, const BenchOptions&) = default;
};

}  // namespace fsdp::bench
