// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera bench mlp`, `attention`, `head`, `matmul`, `optim` and `tokenize`: what one rank computes alone, so that no
/// stack is needed.
#pragma once

#include "bench/options.hpp"

namespace fsdp::bench {

/// The SwiGLU MLP, tiled and not, against its nine matmuls. Prints one line for each sequence length and tiling.
int measure_mlp(const BenchOptions& options);

/// Attention forward and backward against the rate of a matmul. Prints one line for each head size.
int measure_attention(const BenchOptions& options);

/// The head against its three matmuls. Prints one line for each tiling.
int measure_head(const BenchOptions& options);

/// The published setting, several ranks as threads: a line for each length and tiling (`tessera bench mlp --table`).
int measure_mlp_table(const BenchOptions& options);

/// AdamW against a triad, and Muon against AdamW. Prints two lines for each precision.
int measure_optim(const BenchOptions& options);

/// Matmuls of bf16 against float's. Prints a line for each shape.
int measure_matmul(const BenchOptions& options);

/// A tokenizer over documents in memory. Prints a line for one thread and one for all cores.
int measure_tokenize(const BenchOptions& options);

/// Prints a line of Muon's step.
void measure_muon(const BenchOptions& options, cli::PrecisionChoice precision, int threads);

}  // namespace fsdp::bench
