// SPDX-License-Identifier: Apache-2.0
/// @file
/// Causal attention alone, compared with the rate of a square matmul of the same type.
#include <vector>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/operations.hpp>

#include "../src/program/calibrate/computations.hpp"
#include "lines.hpp"
#include "options.hpp"

namespace fsdp::bench {
namespace {

template <class T>
void measure(const BenchOptions& options, std::int64_t head_dim) {
  const int threads = options.threads();
  const device::AttentionShape shape{.sequences = 1,
                                     .sequence_length = options.seq_len > 0 ? options.seq_len : 4096,
                                     .heads = options.heads,
                                     .kv_heads = options.kv_heads,
                                     .head_dim = head_dim};
  calibrate::AttentionPass<device::Cpu, T> attention(shape, threads);
  calibrate::MatmulReplay<device::Cpu> matmul(calibrate::square_matmuls(dtype_of<T>(), 1024, 8), std::int64_t{64} << 20,
                                              threads);
  Rounds rounds;
  const std::size_t forward = rounds.add([&] { attention.forward(); });
  const std::size_t backward = rounds.add([&] { attention.backward(); });
  const std::size_t square = rounds.add([&] { matmul.run(); });
  rounds.run(options.repeats);

  const auto ratio = [&](std::size_t pass, double products) {
    return products * attention.product_flops() / matmul.flops() * rounds.median_ratio(square, pass);
  };
  Line("attention")
      .add("seq", shape.sequence_length, "heads", shape.heads, "kv_heads", shape.kv_heads, "head_dim", head_dim)
      .add("precision", cli::to_text(options.stack.precision), "threads", threads)
      .add("forward_ms", 1e3 * rounds.median_seconds(forward), "backward_ms", 1e3 * rounds.median_seconds(backward))
      .add("scratch_bytes", attention.scratch_bytes())
      .add("matmul_gflops", matmul.flops() / rounds.median_seconds(square) * 1e-9)
      .add("forward_ratio", ratio(forward, 2), "backward_ratio", ratio(backward, 5))
      .print();
}

}  // namespace

void measure_attention(const BenchOptions& options, const train::FlagSet&) {
  std::vector<std::int64_t> head_dims{64, 128};
  if (options.head_dim > 0) head_dims = {options.head_dim};
  for (const std::int64_t head_dim : head_dims)
    options.bf16() ? measure<bf16>(options, head_dim) : measure<float>(options, head_dim);
}

}  // namespace fsdp::bench
