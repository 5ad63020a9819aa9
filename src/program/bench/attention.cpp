// SPDX-License-Identifier: Apache-2.0
/// @file
/// Causal attention alone, against the rate of a square matmul of the same type.
#include <algorithm>
#include <vector>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/operations.hpp>

#include "alone.hpp"
#include "floors.hpp"
#include "lines.hpp"
#include "rounds.hpp"

namespace fsdp::bench {
namespace {

using device::AttentionShape;
using device::Cpu;
using device::MemoryKind;

/// One sequence. q, k and v are columns of one matrix, as in a block; so are their gradients.
template <class T>
class Attention {
 public:
  Attention(const AttentionShape& shape, int threads)
      : shape_(shape),
        arena_(ledger_, scratch_of(shape, threads)),
        stream_(arena_, threads),
        qkv_(block(columns())),
        dqkv_(block(columns())),
        out_(block(q_columns())),
        dout_(block(q_columns())),
        lse_(ledger_, MemoryKind::activations, shape.heads * shape.sequence_length * 4) {
    fill_uniform(matrix(qkv_, columns()), 1.0f);
    fill_uniform(matrix(dout_, q_columns()), 1.0f);
  }

  void forward() {
    const auto qkv = matrix(qkv_, columns());
    device::enqueue(
        stream_,
        device::Attention<T>{
            .shape = shape_, .q = q(qkv), .k = k(qkv), .v = v(qkv), .out = matrix(out_, q_columns()), .lse = lse()});
  }
  void backward() {
    const auto qkv = matrix(qkv_, columns()), dqkv = matrix(dqkv_, columns());
    device::enqueue(stream_, device::AttentionBackward<T>{.shape = shape_,
                                                          .q = q(qkv),
                                                          .k = k(qkv),
                                                          .v = v(qkv),
                                                          .out = matrix(out_, q_columns()),
                                                          .lse = lse(),
                                                          .dout = matrix(dout_, q_columns()),
                                                          .dq = q(dqkv),
                                                          .dk = k(dqkv),
                                                          .dv = v(dqkv)});
  }
  /// FLOPs of the causal half of one product, queries x keys.
  double product_flops() const {
    const auto length = static_cast<double>(shape_.sequence_length);
    return static_cast<double>(q_columns()) * length * length;
  }
  std::int64_t scratch_bytes() const { return arena_.capacity(); }

 private:
  static std::int64_t scratch_of(const AttentionShape& shape, int threads) {
    const Cpu::Planner planner(threads);
    return std::max(scratch(planner, device::Attention<T>{.shape = shape}),
                    scratch(planner, device::AttentionBackward<T>{.shape = shape}));
  }
  std::int64_t q_columns() const { return shape_.heads * shape_.head_dim; }
  std::int64_t columns() const { return q_columns() + 2 * shape_.kv_heads * shape_.head_dim; }
  CpuBlock block(std::int64_t width) {
    return {ledger_, MemoryKind::activations, shape_.tokens() * width * std::int64_t{sizeof(T)}};
  }
  Tensor<T> matrix(const CpuBlock& block, std::int64_t width) const {
    return {reinterpret_cast<T*>(block.data()), {shape_.tokens(), width}};
  }
  Tensor<T> q(Tensor<T> qkv) const { return qkv.slice_columns(0, q_columns()); }
  Tensor<T> k(Tensor<T> qkv) const {
    return qkv.slice_columns(q_columns(), q_columns() + shape_.kv_heads * shape_.head_dim);
  }
  Tensor<T> v(Tensor<T> qkv) const {
    return qkv.slice_columns(q_columns() + shape_.kv_heads * shape_.head_dim, columns());
  }
  Tensor<float> lse() const { return {reinterpret_cast<float*>(lse_.data()), {shape_.heads, shape_.sequence_length}}; }

  AttentionShape shape_;
  device::Ledger ledger_;
  Cpu::Arena arena_;
  Cpu::Stream stream_;
  CpuBlock qkv_, dqkv_, out_, dout_, lse_;
};

template <class T>
Line measure(const BenchOptions& options, std::int64_t head_dim, int threads) {
  const AttentionShape shape{.sequences = 1,
                             .sequence_length = options.seq_len > 0 ? options.seq_len : 4096,
                             .heads = options.heads,
                             .kv_heads = options.kv_heads,
                             .head_dim = head_dim};
  Attention<T> attention(shape, threads);
  MatmulReplay matmul(square_matmuls(dtype_of<T>(), 1024, 8), std::int64_t{64} << 20, threads);
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
  const int threads = comm::rank_threads(options.launch.threads, 1);
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
