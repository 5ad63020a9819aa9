// SPDX-License-Identifier: Apache-2.0
/// @file
/// Forward and backward passes of causal attention, for measurements, with their own memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/fsdp/device/operations.hpp>

#include "fill.hpp"
#include "tensors.hpp"

namespace fsdp::calibrate {

/// Attention over one sequence. q, k and v are columns of one matrix, as in a block, and so are their gradients. Passes
/// are enqueued.
template <class Device, class T>
class AttentionPass {
 public:
  AttentionPass(const device::AttentionShape& shape, int threads)
      : shape_(shape), arena_(ledger_, scratch_of(shape, threads)), stream_(arena_, threads) {
    fill_uniform<Device>(stream_, qkv_, 1.0f);
    fill_uniform<Device>(stream_, dout_, 1.0f);
  }

  void forward() {
    device::enqueue(stream_, device::Attention<T>{
                                 .shape = shape_, .q = q(qkv_), .k = k(qkv_), .v = v(qkv_), .out = out_, .lse = lse_});
  }
  void backward() {
    device::enqueue(stream_, device::AttentionBackward<T>{.shape = shape_,
                                                          .q = q(qkv_),
                                                          .k = k(qkv_),
                                                          .v = v(qkv_),
                                                          .out = out_,
                                                          .lse = lse_,
                                                          .dout = dout_,
                                                          .dq = q(dqkv_),
                                                          .dk = k(dqkv_),
                                                          .dv = v(dqkv_)});
  }
  /// Waits until the enqueued passes have ended.
  void wait() { stream_.synchronize(); }
  /// Returns the FLOPs of the causal half of one product of queries and keys.
  double product_flops() const {
    const auto length = static_cast<double>(shape_.sequence_length);
    return static_cast<double>(q_columns()) * length * length;
  }
  /// Runs both passes and waits for their end.
  void run() {
    forward();
    backward();
    wait();
  }
  /// Returns the FLOPs of both passes, as plans count them.
  double flops() const { return static_cast<double>(shape_.flops(2) + shape_.flops(5)); }
  std::int64_t scratch_bytes() const { return arena_.capacity(); }

 private:
  static std::int64_t scratch_of(const device::AttentionShape& shape, int threads) {
    const typename Device::Planner planner(threads);
    return std::max(scratch(planner, device::Attention<T>{.shape = shape}),
                    scratch(planner, device::AttentionBackward<T>{.shape = shape}));
  }
  std::int64_t q_columns() const { return shape_.heads * shape_.head_dim; }
  std::int64_t columns() const { return q_columns() + 2 * shape_.kv_heads * shape_.head_dim; }
  Tensor<T> q(Tensor<T> qkv) const { return qkv.slice_columns(0, q_columns()); }
  Tensor<T> k(Tensor<T> qkv) const {
    return qkv.slice_columns(q_columns(), q_columns() + shape_.kv_heads * shape_.head_dim);
  }
  Tensor<T> v(Tensor<T> qkv) const {
    return qkv.slice_columns(q_columns() + shape_.kv_heads * shape_.head_dim, columns());
  }

  device::AttentionShape shape_;
  device::Ledger ledger_;
  typename Device::Arena arena_;
  typename Device::Stream stream_;
  Tensors<Device> memory_ = {};
  Tensor<T> qkv_ = memory_.template make<T>({shape_.tokens(), columns()}),
            dqkv_ = memory_.template make<T>(qkv_.shape());
  Tensor<T> out_ = memory_.template make<T>({shape_.tokens(), q_columns()}),
            dout_ = memory_.template make<T>(out_.shape());
  Tensor<float> lse_ = memory_.template make<float>({shape_.heads, shape_.sequence_length});
};

}  // namespace fsdp::calibrate
