// SPDX-License-Identifier: Apache-2.0
/// @file
/// Causal attention, forward and backward, in memory of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations.hpp>

#include "fill.hpp"

namespace fsdp::calibrate {

/// One sequence. q, k and v are columns of one matrix, as in a block; so are their gradients. Passes are enqueued.
template <class Device, class T>
class AttentionPass {
 public:
  AttentionPass(const device::AttentionShape& shape, int threads)
      : shape_(shape),
        arena_(ledger_, scratch_of(shape, threads)),
        stream_(arena_, threads),
        qkv_(block(columns())),
        dqkv_(block(columns())),
        out_(block(q_columns())),
        dout_(block(q_columns())),
        lse_(ledger_, device::MemoryKind::activations, shape.heads * shape.sequence_length * 4) {
    fill_uniform<Device>(stream_, matrix(qkv_, columns()), 1.0f);
    fill_uniform<Device>(stream_, matrix(dout_, q_columns()), 1.0f);
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
  /// Returns when the passes are done.
  void wait() { stream_.synchronize(); }
  /// FLOPs of the causal half of one product, queries x keys.
  double product_flops() const {
    const auto length = static_cast<double>(shape_.sequence_length);
    return static_cast<double>(q_columns()) * length * length;
  }
  /// What forward and backward count, as plans do.
  double counted_flops() const { return static_cast<double>(shape_.flops(2) + shape_.flops(5)); }
  std::int64_t scratch_bytes() const { return arena_.capacity(); }

 private:
  using Block = device::Block<Device>;

  static std::int64_t scratch_of(const device::AttentionShape& shape, int threads) {
    const typename Device::Planner planner(threads);
    return std::max(scratch(planner, device::Attention<T>{.shape = shape}),
                    scratch(planner, device::AttentionBackward<T>{.shape = shape}));
  }
  std::int64_t q_columns() const { return shape_.heads * shape_.head_dim; }
  std::int64_t columns() const { return q_columns() + 2 * shape_.kv_heads * shape_.head_dim; }
  Block block(std::int64_t width) {
    return {ledger_, device::MemoryKind::activations, shape_.tokens() * width * std::int64_t{sizeof(T)}};
  }
  Tensor<T> matrix(const Block& block, std::int64_t width) const {
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

  device::AttentionShape shape_;
  device::Ledger ledger_;
  typename Device::Arena arena_;
  typename Device::Stream stream_;
  Block qkv_, dqkv_, out_, dout_, lse_;
};

}  // namespace fsdp::calibrate
