// SPDX-License-Identifier: Apache-2.0
/// @file
/// The output of `tessera bench`: one JSON object per line. bench/README.md says how each value is measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fsdp::bench {

/// The SwiGLU MLP alone, on one rank.
struct MlpLine {
  std::int64_t seq = 0;
  std::string tiling, precision;
  int threads = 1;
  std::int64_t hidden = 0, intermediate = 0;
  double forward_ms = 0, backward_ms = 0;
  std::int64_t peak_bytes = 0;        ///< the sum of the next four
  std::int64_t activation_bytes = 0;  ///< the arena's peak: saved, tiles, matmul scratch
  std::int64_t stream_bytes = 0;      ///< x, y and dy (which becomes dx)
  std::int64_t weight_bytes = 0, gradient_bytes = 0;
  double gemm_floor_ms = 0;   ///< the nine matmuls
  double module_gemm_ms = 0;  ///< the six calls in which the untiled module makes them
  double ratio = 0;           ///< (forward + backward) / gemm_floor
  double ratio_to_module_gemm = 0;
  std::optional<double> ratio_to_untiled;
};
std::string json_line(const MlpLine& line);

/// Attention of one sequence.
struct AttentionLine {
  std::int64_t seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::string precision;
  int threads = 1;
  double forward_ms = 0, backward_ms = 0;
  std::int64_t scratch_bytes = 0;  ///< of the pass that takes more
  double matmul_gflops = 0;        ///< of a 1024 x 1024 x 1024 matmul
  double forward_ratio = 0;        ///< 2 x heads x S^2 x head_dim FLOPs per second, over that rate
  double backward_ratio = 0;       ///< the same with 5 x
};
std::string json_line(const AttentionLine& line);

/// The loss of a head with all gradients.
struct HeadLine {
  std::int64_t tokens = 0, hidden = 0, vocabulary = 0;
  std::string tiling, precision;
  int threads = 1;
  std::int64_t tokens_per_tile = 0, columns_per_block = 0;
  double milliseconds = 0;
  double matmul_ms = 0;  ///< the three matmuls, all tokens at once
  double ratio = 0;
  std::int64_t planned_bytes = 0;  ///< the tiling plan's: workspace of a tile
  std::int64_t arena_bytes = 0;    ///< of the arena: these and matmul scratch
};
std::string json_line(const HeadLine& line);

/// The MLP in the published setting, on several ranks.
struct MlpTableLine {
  std::int64_t seq = 0;
  std::string tiling, plan, precision;
  int ranks = 1, threads = 1;
  std::int64_t hidden = 0, intermediate = 0;
  std::int64_t peak_bytes = 0;        ///< of one rank: the sum of the next seven
  std::int64_t activation_bytes = 0;  ///< the arena's peak: kept gate and up, tiles, matmul scratch
  std::int64_t stream_bytes = 0;      ///< x, out and dout (which becomes dx)
  std::int64_t main_bytes = 0, model_bytes = 0, gathered_bytes = 0, gradient_bytes = 0, gradient_shard_bytes = 0;
  std::int64_t matmul_flops = 0;                  ///< of a forward and a backward
  std::optional<double> forward_ms, backward_ms;  ///< with gather and reduction; of the slowest rank
  std::optional<double> ratio_to_untiled, flops_to_untiled;
  std::optional<std::int64_t> published_untiled_bytes, published_tiled_bytes;
};
std::string json_line(const MlpTableLine& line);

/// The lower bound of a step's time, by parts, and the rates that were used for it.
struct StepFloorParts {
  double matmul_ms = 0, attention_ms = 0, elementwise_ms = 0, optimizer_ms = 0;
  double matmul_gflops = 0;       ///< of the square matmul, used for attention
  double copy_gb_per_second = 0;  ///< read and written
  double triad_gb_per_second = 0;
  std::int64_t elementwise_bytes = 0;  ///< of a step on one rank
};

/// The time of a step by phase, summed over its schedule's events; mean of the timed steps.
struct StepPhases {
  double forward_ms = 0, loss_ms = 0, backward_ms = 0;
  double exchange_ms = 0;   ///< starting gathers and reductions; waiting for them is in the phase that needs them
  double optimizer_ms = 0;  ///< gradient norm and the optimizer
};

/// A whole training step: the slowest rank's times.
struct StepLine {
  std::string stack, tiling, optimizer;
  int ranks = 1, threads = 1;
  std::int64_t parameters = 0, seq = 0;
  double tokens_per_second = 0;  ///< of all ranks
  double step_ms = 0, floor_ms = 0, ratio = 0;
  double communication_ms = 0, waiting_ms = 0;
  std::int64_t copied_bytes = 0;  ///< received and copied by collectives, per step
  std::int64_t allocations = 0;   ///< blocks of tensor memory allocated during the timed steps
  std::int64_t peak_bytes = 0;
  double loss = 0;  ///< of the last step, nats per token
  StepFloorParts floor;
  StepPhases phases;
  std::optional<double> owners_balance;  ///< with whole tensors: the most optimizer work of a rank over the mean
  std::optional<double> bare_loop_ms, ratio_to_bare_loop, bare_loop_loss;  ///< on one rank
  std::optional<double> lora_ms, lora_time_ratio, lora_memory_ratio;       ///< of a step that trains only adapters
};
std::string json_line(const StepLine& line);

/// A matmul of bf16 operands against the same matmul of float.
struct MatmulLine {
  std::int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false, accumulate = false;
  std::string way;  ///< native, or by conversion to float
  std::string isa;
  int threads = 1;
  double gflops = 0, float_gflops = 0;
  double ratio = 0;  ///< of the two rates
};
std::string json_line(const MatmulLine& line);

/// A tokenizer on documents in memory.
struct TokenizeLine {
  std::string tokenizer;
  std::int64_t vocabulary = 0, bytes = 0, tokens = 0;
  int threads = 1;
  double load_ms = 0;  ///< reading tokenizer.json, the best of several
  double megabytes_per_second = 0;
};
std::string json_line(const TokenizeLine& line);

/// The generation of one token: the slowest rank's times.
struct GenerateLine {
  std::string stack;
  int ranks = 1, threads = 1;
  std::int64_t parameters = 0, tokens = 0;         ///< tokens: of the sequence; the last is timed
  std::int64_t weight_bytes = 0, cache_bytes = 0;  ///< weights: those that a token reads entirely
  double token_ms = 0, read_ms = 0, ratio = 0;     ///< read: one read of weight_bytes
};
std::string json_line(const GenerateLine& line);

/// Loading weights from a folder: the slowest rank's times.
struct LoadLine {
  std::string stack;
  int ranks = 1;
  std::int64_t files = 0, bytes = 0;           ///< of weights
  double load_ms = 0, read_ms = 0, ratio = 0;  ///< read: the files alone; ratio: rate of loading over rate of reading
};
std::string json_line(const LoadLine& line);

struct CommLine {
  std::string backend;
  std::string way;  ///< "windows" or "messages"; empty where a backend has one way only
  std::string op;
  std::int64_t bytes = 0;  ///< of the whole tensor
  int ranks = 1, threads = 1;
  double milliseconds = 0;
  double gb_per_second = 0, memcpy_gb_per_second = 0, ratio = 0;
  std::optional<double> library_milliseconds = {}, ratio_to_library = {};  ///< MPI's own collective
};
std::string json_line(const CommLine& line);

/// AdamW over one long tensor, against a triad.
struct OptimLine {
  std::string precision;
  int threads = 1;
  std::int64_t parameters = 0, bytes_per_parameter = 0;
  double milliseconds = 0;
  double gb_per_second = 0, triad_gb_per_second = 0, ratio = 0;
};
std::string json_line(const OptimLine& line);

/// Muon's step on a layer's matrices, and the balance of whole matrices over `ranks`: the largest share over the mean.
struct MuonLine {
  std::string precision;
  int threads = 1;
  std::int64_t parameters = 0;
  double milliseconds = 0, adamw_milliseconds = 0, ratio = 0;
  double gflops = 0;  ///< rate of Newton-Schulz
  int ranks = 1;
  double work_balance = 1, bytes_balance = 1;
};
std::string json_line(const MuonLine& line);

}  // namespace fsdp::bench
