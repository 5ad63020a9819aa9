// SPDX-License-Identifier: Apache-2.0
/// @file
/// Timed computations with their own operands: the matmuls of a training step, and passes of causal attention.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations.hpp>

namespace fsdp::calibrate {

/// Tensors with their own memory, for operands.
template <class Device>
class Tensors {
 public:
  /// Allocates a tensor, which lives as long as this object.
  template <class T>
  Tensor<T> make(const Shape& shape) {
    blocks_.emplace_back(ledger_, device::MemoryKind::scratch, shape.numel() * std::int64_t{sizeof(T)});
    return {reinterpret_cast<T*>(blocks_.back().data()), shape};
  }
  std::int64_t bytes() const { return ledger_.bytes(); }  ///< bytes of all tensors

 private:
  device::Ledger ledger_;
  std::vector<device::Block<Device>> blocks_;
};

/// Fills host memory with floats or bf16 in [-scale, scale), which become neither denormal nor large when they are
/// multiplied; always the same.
template <class T>
void fill_uniform(Tensor<T> values, float scale) {
  std::uint32_t state = 0x9e3779b9u;
  for (T& value : std::span(values.data(), static_cast<std::size_t>(values.numel()))) {
    state = state * 1664525u + 1013904223u;
    value = T(scale * (static_cast<float>(state >> 8) * 0x1p-23f - 1.0f));
  }
}
/// Fills memory of a device.
template <class Device, class T>
void fill_uniform(typename Device::Queue& queue, Tensor<T> values, float scale) {
  device::OnHost<Device, T> host(queue, values, device::Fetch::nothing);
  fill_uniform(host.values(), scale);
  host.write_back();
}

/// Returns `count` square matmuls in a compute type. Their rate is the reference for attention.
std::vector<device::MatmulRecord> square_matmuls(DType dtype, std::int64_t size, int count);
/// Returns the matmuls of a projection of tokens [T, in] by a weight [out, in]: forward, the input's gradient, and the
/// weight's gradient, which is accumulated in float.
std::vector<device::MatmulRecord> projection(DType dtype, std::int64_t tokens, std::int64_t in, std::int64_t out);

/// Replays a list of matmuls with their shapes, transpositions and types. Operands are contiguous and come from two
/// ring buffers of `ring_bytes` (inputs and outputs), so that they are no warmer in the caches than in a real step.
template <class Device>
class MatmulReplay {
 public:
  MatmulReplay(std::vector<device::MatmulRecord> list, std::int64_t ring_bytes, int threads)
      : list_(std::move(list)),
        arena_(ledger_, scratch_of(list_, threads)),
        stream_(arena_, threads),
        read_(ledger_, device::MemoryKind::scratch, round_up(largest(list_, ring_bytes, false), device::alignment)),
        written_(ledger_, device::MemoryKind::scratch, largest(list_, ring_bytes, true)) {
    for (const device::MatmulRecord& record : list_)
      flops_ += 2.0 * static_cast<double>(record.m) * static_cast<double>(record.n) * static_cast<double>(record.k);
    if (list_.empty()) return;
    if (list_.front().operands == DType::bf16)
      fill_uniform<Device>(stream_, Tensor<bf16>(reinterpret_cast<bf16*>(read_.data()), {read_.bytes() / 2}), 0.5f);
    else
      fill_uniform<Device>(stream_, Tensor<float>(reinterpret_cast<float*>(read_.data()), {read_.bytes() / 4}), 0.5f);
  }

  /// Runs all matmuls and waits for their end.
  void run() {
    Ring read(read_), written(written_);
    for (const device::MatmulRecord& record : list_) {
      const Sizes sizes(record);
      const std::byte* const a = read.take(sizes.a + sizes.b);
      std::byte* const c = written.take(sizes.c);
      with_matmul(record, a, a + sizes.a, c, [&](const auto& matmul) { device::enqueue(stream_, matmul); });
    }
    stream_.synchronize();
  }
  double flops() const { return flops_; }

 private:
  /// Sizes of the three operands in bytes, each rounded up for its place in a ring buffer.
  struct Sizes {
    std::int64_t a, b, c;
    explicit Sizes(const device::MatmulRecord& record)
        : a(round_up(record.m * record.k * size_of(record.operands), device::alignment)),
          b(round_up(record.k * record.n * size_of(record.operands), device::alignment)),
          c(round_up(record.m * record.n * size_of(record.result), device::alignment)) {}
  };
  /// A ring buffer: returns the next `bytes` bytes, or the first ones if the rest is too small.
  class Ring {
   public:
    explicit Ring(const device::Block<Device>& block) : block_(&block) {}
    std::byte* take(std::int64_t bytes) {
      if (at_ + bytes > block_->bytes()) at_ = 0;
      return block_->data() + std::exchange(at_, at_ + bytes);
    }

   private:
    const device::Block<Device>* block_;
    std::int64_t at_ = 0;
  };

  static std::int64_t largest(const std::vector<device::MatmulRecord>& list, std::int64_t at_least, bool is_result) {
    std::int64_t bytes = at_least;
    for (const device::MatmulRecord& record : list) {
      const Sizes sizes(record);
      bytes = std::max(bytes, is_result ? sizes.c : sizes.a + sizes.b);
    }
    return bytes;
  }
  /// Returns the record's matmul on contiguous operands.
  template <class A, class C>
  static device::Matmul<A, C> matmul_of(const device::MatmulRecord& record, const std::byte* a, const std::byte* b,
                                        std::byte* c) {
    const Shape a_shape = record.a_transposed ? Shape{record.k, record.m} : Shape{record.m, record.k};
    const Shape b_shape = record.b_transposed ? Shape{record.n, record.k} : Shape{record.k, record.n};
    return {.a = {{reinterpret_cast<const A*>(a), a_shape}, record.a_transposed},
            .b = {{reinterpret_cast<const A*>(b), b_shape}, record.b_transposed},
            .c = {reinterpret_cast<C*>(c), {record.m, record.n}},
            .write = record.accumulate ? Write::accumulate : Write::overwrite};
  }
  /// Calls body(matmul) with the record's element types.
  template <class Body>
  static void with_matmul(const device::MatmulRecord& record, const std::byte* a, const std::byte* b, std::byte* c,
                          const Body& body) {
    if (record.operands == DType::f32)
      body(matmul_of<float, float>(record, a, b, c));
    else if (record.result == DType::f32)
      body(matmul_of<bf16, float>(record, a, b, c));
    else
      body(matmul_of<bf16, bf16>(record, a, b, c));
  }
  static std::int64_t scratch_of(const std::vector<device::MatmulRecord>& list, int threads) {
    const typename Device::Planner planner(threads);
    std::int64_t bytes = 0;
    for (const device::MatmulRecord& record : list)
      with_matmul(record, nullptr, nullptr, nullptr,
                  [&](const auto& matmul) { bytes = std::max(bytes, scratch(planner, matmul)); });
    return bytes + device::alignment;
  }

  std::vector<device::MatmulRecord> list_;
  device::Ledger ledger_;
  typename Device::Arena arena_;
  typename Device::Stream stream_;
  device::Block<Device> read_, written_;
  double flops_ = 0;
};

extern template class MatmulReplay<device::Cpu>;

/// Attention over one sequence. q, k and v are columns of one matrix, as in a block; so are their gradients.
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
  void wait() { stream_.synchronize(); }  ///< waits until the enqueued passes have ended
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
