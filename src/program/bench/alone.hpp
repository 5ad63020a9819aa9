// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera bench`: the check of its options, and the benches of what a rank computes alone, without a stack: `mlp`,
/// `attention`, `head`, `matmul`, `optim` and `tokenize`.
#pragma once

#include "../cli/bench_options.hpp"

namespace fsdp::bench {

/// Throws InputError, with one sentence about the first invalid value.
void check(const BenchOptions& options, const train::FlagSet& flags);

/// Measures the SwiGLU MLP, tiled and untiled, against its nine matmuls. Prints a line for each sequence length and
/// tiling.
int measure_mlp(const BenchOptions& options, const train::FlagSet& flags);

/// Measures forward and backward of attention against the rate of a matmul. Prints a line for each head size.
int measure_attention(const BenchOptions& options);

/// Measures the head against its three matmuls. Prints a line for each tiling.
int measure_head(const BenchOptions& options, const train::FlagSet& flags);

/// Measures the MLP in the published setting, with several ranks as threads (`tessera bench mlp --table`). Prints a
/// line for each length and tiling.
int measure_mlp_table(const BenchOptions& options, const train::FlagSet& flags);

/// Measures AdamW against a triad, and Muon against AdamW. Prints two lines for each precision.
int measure_optim(const BenchOptions& options, const train::FlagSet& flags);

/// Measures bf16 matmuls against float's. Prints a line for each shape.
int measure_matmul(const BenchOptions& options);

/// Measures a tokenizer on documents in memory. Prints a line for one thread and one for all cores.
int measure_tokenize(const BenchOptions& options);

}  // namespace fsdp::bench
