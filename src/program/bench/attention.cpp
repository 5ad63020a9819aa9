// SPDX-License-Identifier: Apache-2.0
/// @file
/// Causal attention alone, against the rate of a square matmul of the same type.
#include <algorithm>
#include <vector>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/operations.hpp>

#include "alone.hpp"
#include "attention_pass.hpp"
#include "lines.hpp"
#include "matmul_replay.hpp"
#include "rounds.hpp"

namespace fsdp::bench {
namespace {

using device::AttentionShape;
template <class T>
Line measure(const BenchOptions& options, std::int64_t head_dim, int threads) {
  const AttentionShape shape{.sequences = 1,
                             .sequence_length = options.seq_len > 0 ? options.seq_len : 4096,
                             .heads = options.heads,
                             .kv_heads = options.kv_heads,
                             .head_dim = head_dim};
  AttentionPass<device::Cpu, T> attention(shape, threads);
  MatmulReplay<device::Cpu> matmul(square_matmuls(dtype_of<T>(), 1024, 8), std::int64_t{64} << 20, threads);
  Rounds rounds;
  const std::size_t forward = rounds.add([&] { attention.forward(); });
  const std::size_t backward = rounds.add([&] { attention.backward(); });
  const std::size_t floor = rounds.add([&] { matmul.run(); });
  rounds.run(options.repeats);

  const auto ratio = [&](std::size_t pass, double products) {
    return rounds.median_of([&](std::size_t round) {
      return products * attention.product_flops() / rounds.seconds(pass, round) /
             (matmul.flops() / rounds.seconds(floor, round));
    });
  };
  return Line("attention")
      .add("seq", shape.sequence_length)
      .add("heads", shape.heads)
      .add("kv_heads", shape.kv_heads)
      .add("head_dim", head_dim)
      .add("precision", cli::to_text(options.stack.precision))
      .add("threads", threads)
      .add("forward_ms", 1e3 * rounds.median_seconds(forward))
      .add("backward_ms", 1e3 * rounds.median_seconds(backward))
      .add("scratch_bytes", attention.scratch_bytes())
      .add("matmul_gflops", matmul.flops() / rounds.median_seconds(floor) * 1e-9)
      .add("forward_ratio", ratio(forward, 2))
      .add("backward_ratio", ratio(backward, 5));
}

}  // namespace

int measure_attention(const BenchOptions& options) {
  const int threads = comm::planned_threads(options.launch.threads, 1);
  std::vector<std::int64_t> head_dims{64, 128};
  if (options.head_dim > 0) head_dims = {options.head_dim};
  for (const std::int64_t head_dim : head_dims) {
    const Line line = options.stack.precision == cli::PrecisionChoice::bf16
                          ? measure<bf16>(options, head_dim, threads)
                          : measure<float>(options, head_dim, threads);
    line.print();
  }
  return 0;
}

}  // namespace fsdp::bench
