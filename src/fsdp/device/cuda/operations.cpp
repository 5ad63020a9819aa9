// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cuda's operations: each enqueues its kernels. `enqueue` has checked arguments, counted work and allocated scratch.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include <tessera/fsdp/device/compute/cuda.hpp>

#include "kernels.hpp"
#include "scratch.hpp"

namespace fsdp::device {
namespace {

cuda::Lane lane_of(const Cuda::Queue& queue) { return {.stream = static_cast<CUstream_st*>(queue.native())}; }
cuda::Lane lane_of(const Cuda::Stream& stream) {
  return {.stream = static_cast<CUstream_st*>(stream.native()), .plain = stream.plain()};
}

/// Returns the first row of every token's document, in `memory`; empty without packed documents.
Tensor<const std::int32_t> first_rows(const Cuda::Stream& stream, CumulativeLengths documents, std::int64_t tokens,
                                      Scratch memory) {
  if (documents.empty()) return {};
  const auto first = memory.as<std::int32_t>({tokens});
  cuda::first_rows(lane_of(stream), documents, first);
  return first;
}

}  // namespace

void Cuda::round(Queue& queue, const float* from, DType wire, std::int64_t count, std::byte* to) {
  cuda::round(lane_of(queue), from, wire, count, to);
}

void Cuda::sum_in_order(Queue& queue, std::span<const std::byte* const> parts, DType stored, DType wire,
                        std::int64_t count, Write write, float* sum) {
  require(!parts.empty() && parts.size() <= cuda::most_parts, "sum_in_order: ", parts.size(), " parts; 1 to ",
          cuda::most_parts);
  cuda::sum_in_order(lane_of(queue), parts, stored, wire, count, write, sum);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const RmsNorm<T>& op) {
  cuda::rms_norm<T>(lane_of(stream), op.x, op.weight, op.eps, op.y, op.rstd);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const RmsNormBackward<T>& op, Scratch memory) {
  const auto parts = memory.as<float>({memory.bytes / std::int64_t{sizeof(float)}});
  cuda::rms_norm_backward<T>(lane_of(stream), op.x, op.weight, op.rstd, op.dy, op.dx, op.dx_write, op.dw, op.dw_write,
                             parts);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const AddBias<T>& op) {
  cuda::add_bias<T>(lane_of(stream), op.bias, op.y);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const BiasBackward<T>& op, Scratch memory) {
  const auto parts = memory.as<float>({memory.bytes / std::int64_t{sizeof(float)}});
  cuda::bias_backward<T>(lane_of(stream), op.dy, op.dbias, op.write, parts);
}

void run(Cuda::Stream& stream, const RotaryTable& op) {
  cuda::rotary_table(lane_of(stream), op.theta, op.scaling, op.table, op.positions);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const Rope<T>& op, Scratch memory) {
  const auto first = first_rows(stream, op.documents, op.x.rows(), memory);
  cuda::rope<T>(lane_of(stream), op.x, op.table, op.rotation, first);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const Attention<T>& op, Scratch memory) {
  if constexpr (cuda::has_cudnn)
    if (cuda::attention_through_cudnn(stream, cuda::attention_call(op.shape, op.lse, op.q, op.k, op.v, op.out),
                                      memory.as<std::uint8_t>({memory.bytes})))
      return;
  const auto first = first_rows(stream, op.shape.documents, op.shape.tokens(), memory);
  cuda::attention<T>(lane_of(stream), op.shape, op.q, op.k, op.v, op.out, op.lse, first);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const AttentionBackward<T>& op, Scratch memory) {
  const auto& [shape, q, k, v, out, lse, dout, dq, dk, dv] = op;
  if constexpr (cuda::has_cudnn)
    if (const auto call = cuda::attention_call(shape, lse, q, k, v, out, dout, dq, dk, dv);
        cuda::attention_through_cudnn(stream, call, memory.as<std::uint8_t>({memory.bytes})))
      return;
  const auto first = first_rows(stream, shape.documents, shape.tokens(), memory);
  const auto products = memory.as<float>(lse.shape(), cuda::attention_products_at(shape));
  cuda::attention_backward<T>(lane_of(stream), shape, {q, k, v, out, dout, lse, dq, dk, dv, first, products});
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const KeepHeads<T>& op) {
  cuda::keep_heads<T>(lane_of(stream), op);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const CachedAttention<T>& op) {
  cuda::cached_attention<T>(lane_of(stream), op);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const SwiGlu<T>& op) {
  cuda::swiglu<T>(lane_of(stream), op.gate, op.up, op.h);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const SwiGluBackward<T>& op) {
  cuda::swiglu_backward<T>(lane_of(stream), op.gate, op.up, op.dh);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const Embedding<T>& op) {
  cuda::embedding<T>(lane_of(stream), op.table, op.tokens, op.out);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const EmbeddingBackward<T>& op) {
  cuda::embedding_backward<T>(lane_of(stream), op.tokens, op.dy, op.dtable, op.write);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const CrossEntropy<T>& op, Scratch memory) {
  const auto losses = memory.as<double>({op.logits.rows()});
  cuda::cross_entropy<T>(lane_of(stream), op.logits, op.targets, op.scale, losses);
  cuda::add_up(lane_of(stream), losses, op.loss);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const CrossEntropyLoss<T>& op, Scratch memory) {
  const auto losses = memory.as<double>({op.logits.rows()});
  cuda::cross_entropy_losses<T>(lane_of(stream), op.logits, op.targets, losses);
  cuda::add_up(lane_of(stream), losses, op.loss);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const CrossEntropyFold<T>& op) {
  cuda::cross_entropy_fold<T>(lane_of(stream), op.logits, op.first, op.targets, op.state);
}

void run(Cuda::Stream& stream, const CrossEntropySum& op) { cuda::add_up_states(lane_of(stream), op.state, op.loss); }

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const CrossEntropyGradient<T>& op) {
  cuda::cross_entropy_gradient<T>(lane_of(stream), op.logits, op.first, op.targets, op.scale, op.state);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const Add<T>& op) {
  cuda::add<T>(lane_of(stream), op.x, op.y);
}

template <ComputedBy<Cuda> X, ComputedBy<Cuda> Y>
void run(Cuda::Stream& stream, const Copy<X, Y>& op) {
  const bool as_it_is = std::is_same_v<X, Y> && op.x.contiguous() && op.y.contiguous();
  if (as_it_is)
    Cuda::move(stream, reinterpret_cast<const std::byte*>(op.x.data()), reinterpret_cast<std::byte*>(op.y.data()),
               op.x.bytes());
  else
    cuda::copy<X, Y>(lane_of(stream), op.x, op.y);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const Fill<T>& op) {
  cuda::fill<T>(lane_of(stream), op.y, op.value);
}
void run(Cuda::Stream& stream, const Fill<double>& op) { cuda::fill<double>(lane_of(stream), op.y, op.value); }

template <ComputedBy<Cuda> X, ComputedBy<Cuda> Y>
void run(Cuda::Stream& stream, const Scale<X, Y>& op) {
  cuda::scale<X, Y>(lane_of(stream), op.x, op.y, op.factor, op.write == Write::accumulate, op.dropout);
}

void run(Cuda::Stream& stream, const SumOfSquares& op, Scratch memory) {
  const auto partials = memory.as<double>({op.chunks()});
  cuda::squares(lane_of(stream), op.x, partials);
  cuda::add_up(lane_of(stream), partials, op.sum);
}

void run(Cuda::Stream& stream, const LargestMagnitude& op, Scratch memory) {
  cuda::largest_magnitude(lane_of(stream), op, memory.as<std::int64_t>({op.chunks()}));
}

void run(Cuda::Stream& stream, const FixedPointSquares& op, Scratch memory) {
  cuda::fixed_point_squares(lane_of(stream), op, memory.as<FixedPointSum>({op.chunks()}));
}

void run(Cuda::Stream& stream, const DecideStep& op) { cuda::decide_step(lane_of(stream), op); }

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const AddDigest<T>& op, Scratch memory) {
  cuda::digest<T>(lane_of(stream), op.x, op.begin, op.key, memory.as<std::int64_t>({op.chunks()}), op.sum);
}

template <ComputedBy<Cuda> Model>
void run(Cuda::Stream& stream, const AdamWStep<Model>& op, Scratch memory) {
  cuda::adamw<Model>(lane_of(stream), op.rules, op.step.data(), op.main, op.first_moment, op.second_moment, op.gradient,
                     op.model, reinterpret_cast<AdamWFactors*>(memory.data));
}

template <ComputedBy<Cuda> Model>
void run(Cuda::Stream& stream, const SgdStep<Model>& op) {
  cuda::sgd(lane_of(stream), op);
}

void run(Cuda::Stream& stream, const MomentumDirection& op) { cuda::momentum_direction(lane_of(stream), op); }

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const Normalized<T>& op) {
  cuda::normalized(lane_of(stream), op);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const Combination<T>& op) {
  cuda::combination(lane_of(stream), op);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const DirectionStep<T>& op) {
  cuda::direction_step(lane_of(stream), op);
}

#define FSDP_CUDA_OPERATIONS(T)                                           \
  template void run(Cuda::Stream&, const RmsNorm<T>&);                    \
  template void run(Cuda::Stream&, const RmsNormBackward<T>&, Scratch);   \
  template void run(Cuda::Stream&, const AddBias<T>&);                    \
  template void run(Cuda::Stream&, const BiasBackward<T>&, Scratch);      \
  template void run(Cuda::Stream&, const Rope<T>&, Scratch);              \
  template void run(Cuda::Stream&, const Attention<T>&, Scratch);         \
  template void run(Cuda::Stream&, const AttentionBackward<T>&, Scratch); \
  template void run(Cuda::Stream&, const KeepHeads<T>&);                  \
  template void run(Cuda::Stream&, const CachedAttention<T>&);            \
  template void run(Cuda::Stream&, const SwiGlu<T>&);                     \
  template void run(Cuda::Stream&, const SwiGluBackward<T>&);             \
  template void run(Cuda::Stream&, const Embedding<T>&);                  \
  template void run(Cuda::Stream&, const EmbeddingBackward<T>&);          \
  template void run(Cuda::Stream&, const CrossEntropy<T>&, Scratch);      \
  template void run(Cuda::Stream&, const CrossEntropyLoss<T>&, Scratch);  \
  template void run(Cuda::Stream&, const CrossEntropyFold<T>&);           \
  template void run(Cuda::Stream&, const CrossEntropyGradient<T>&);       \
  template void run(Cuda::Stream&, const Add<T>&);                        \
  template void run(Cuda::Stream&, const Copy<T, float>&);                \
  template void run(Cuda::Stream&, const Copy<T, bf16>&);                 \
  template void run(Cuda::Stream&, const Copy<T, f16>&);                  \
  template void run(Cuda::Stream&, const Fill<T>&);                       \
  template void run(Cuda::Stream&, const Scale<T, T>&);                   \
  template void run(Cuda::Stream&, const AddDigest<T>&, Scratch);         \
  template void run(Cuda::Stream&, const AdamWStep<T>&, Scratch);         \
  template void run(Cuda::Stream&, const SgdStep<T>&);                    \
  template void run(Cuda::Stream&, const Normalized<T>&);                 \
  template void run(Cuda::Stream&, const Combination<T>&);                \
  template void run(Cuda::Stream&, const DirectionStep<T>&);
FSDP_CUDA_OPERATIONS(float)
FSDP_CUDA_OPERATIONS(bf16)
FSDP_CUDA_OPERATIONS(f16)
template void run(Cuda::Stream&, const Scale<bf16, float>&);
template void run(Cuda::Stream&, const Scale<f16, float>&);

}  // namespace fsdp::device
