// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cuda's operations: arguments are checked and counted, scratch is taken, kernels are queued.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include <fsdp/device/cuda.hpp>

#include "../costs.hpp"
#include "kernels.hpp"
#include "scratch.hpp"

namespace fsdp::device {
namespace {

cuda::Lane lane_of(const Cuda::Queue& queue) { return {.stream = static_cast<CUstream_st*>(queue.native())}; }
cuda::Lane lane_of(const Cuda::Stream& stream) {
  return {.stream = static_cast<CUstream_st*>(stream.native()), .plain = stream.plain()};
}

/// Counts an operation and says where it runs.
cuda::Lane charge(Cuda::Stream& stream, const costs::Cost& cost) {
  stream.counters.elementwise_bytes += cost.bytes;
  return lane_of(stream);
}

/// The first row of every token's document, in `scratch`; empty where sequences are whole.
Tensor<const std::int32_t> first_rows(Cuda::Stream& stream, CumulativeLengths documents, std::int64_t tokens,
                                      Tensor<std::uint8_t> scratch) {
  if (documents.empty()) return {};
  const Tensor<std::int32_t> first(reinterpret_cast<std::int32_t*>(scratch.data()), {tokens});
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

template <class T>
void Cuda::rms_norm(Stream& stream, Tensor<const T> x, Tensor<const T> w, float eps, Tensor<T> y, Tensor<float> rstd) {
  cuda::rms_norm<T>(charge(stream, costs::rms_norm(x, w, y, rstd)), x, w, eps, y, rstd);
}

template <class T>
void Cuda::rms_norm_backward(Stream& stream, Tensor<const T> x, Tensor<const T> w, Tensor<const float> rstd,
                             Tensor<const T> dy, Tensor<T> dx, Write dx_write, Tensor<float> dw, Write dw_write) {
  const costs::Cost cost = costs::rms_norm_backward(x, w, rstd, dy, dx, dx_write, dw, dw_write, stream.threads());
  Arena::Frame frame(stream.arena());
  const std::int64_t scratch = cuda::norm_scratch(x.rows(), x.columns(), dw.data() != nullptr);
  const auto parts = frame.allocate<float>({scratch / 4}, MemoryKind::scratch);
  cuda::rms_norm_backward<T>(charge(stream, cost), x, w, rstd, dy, dx, dx_write, dw, dw_write, parts);
}

void Cuda::rotary_table(Stream& stream, float theta, Tensor<float> table) {
  cuda::rotary_table(charge(stream, costs::rotary_table(table)), theta, table);
}

template <class T>
void Cuda::rope(Stream& stream, Tensor<T> x, Tensor<const float> table, Rotation rotation,
                CumulativeLengths documents) {
  const costs::Cost cost = costs::rope(x, table, documents);
  Arena::Frame frame(stream.arena());
  const auto scratch = frame.allocate<std::uint8_t>({cuda::documents_scratch(x.rows())}, MemoryKind::scratch);
  const Tensor<const std::int32_t> first = first_rows(stream, documents, x.rows(), scratch);
  cuda::rope<T>(charge(stream, cost), x, table, rotation, first);
}

template <class T>
void Cuda::attention(Stream& stream, const AttentionShape& shape, Tensor<const T> q, Tensor<const T> k,
                     Tensor<const T> v, Tensor<T> out, Tensor<float> lse) {
  costs::require_attention(shape, q, k, v, out.shape(), lse.shape());
  stream.counters.attention_flops += costs::attention_flops(shape, false);
  Arena::Frame frame(stream.arena());
  const std::int64_t bytes = cuda::attention_scratch(shape, dtype_of<T>(), false);
  const auto scratch = frame.allocate<std::uint8_t>({bytes}, MemoryKind::scratch);
  if constexpr (cuda::has_cudnn)
    if (cuda::attention_through_cudnn(stream, cuda::attention_call(shape, lse, q, k, v, out), scratch)) return;
  const Tensor<const std::int32_t> first = first_rows(stream, shape.documents, shape.tokens(), scratch);
  cuda::attention<T>(lane_of(stream), shape, q, k, v, out, lse, first);
}

template <class T>
void Cuda::attention_backward(Stream& stream, const AttentionShape& shape, Tensor<const T> q, Tensor<const T> k,
                              Tensor<const T> v, Tensor<const T> out, Tensor<const float> lse, Tensor<const T> dout,
                              Tensor<T> dq, Tensor<T> dk, Tensor<T> dv) {
  costs::require_attention(shape, q, k, v, out.shape(), lse.shape());
  costs::require_attention<T>(shape, dq, dk, dv, dout.shape(), lse.shape());
  stream.counters.attention_flops += costs::attention_flops(shape, true);
  Arena::Frame frame(stream.arena());
  const std::int64_t bytes = cuda::attention_scratch(shape, dtype_of<T>(), true);
  const auto scratch = frame.allocate<std::uint8_t>({bytes}, MemoryKind::scratch);
  if constexpr (cuda::has_cudnn)
    if (const auto call = cuda::attention_call(shape, lse, q, k, v, out, dout, dq, dk, dv);
        cuda::attention_through_cudnn(stream, call, scratch))
      return;
  const Tensor<const std::int32_t> first = first_rows(stream, shape.documents, shape.tokens(), scratch);
  const Tensor<float> products(reinterpret_cast<float*>(scratch.data() + cuda::attention_products_at(shape)),
                               lse.shape());
  cuda::attention_backward<T>(lane_of(stream), shape, {q, k, v, out, dout, lse, dq, dk, dv, first, products});
}

template <class T>
void Cuda::swiglu(Stream& stream, Tensor<const T> gate, Tensor<const T> up, Tensor<T> h) {
  cuda::swiglu<T>(charge(stream, costs::swiglu(gate, up, h)), gate, up, h);
}

template <class T>
void Cuda::swiglu_backward(Stream& stream, Tensor<T> gate, Tensor<T> up, Tensor<T> dh) {
  cuda::swiglu_backward<T>(charge(stream, costs::swiglu_backward(gate, up, dh)), gate, up, dh);
}

template <class T>
void Cuda::embedding(Stream& stream, Tensor<const T> table, Tensor<const std::int32_t> tokens, Tensor<T> out) {
  cuda::embedding<T>(charge(stream, costs::embedding(table, tokens, out)), table, tokens, out);
}

template <class T>
void Cuda::embedding_backward(Stream& stream, Tensor<const std::int32_t> tokens, Tensor<const T> dy,
                              Tensor<float> dtable, Write write) {
  cuda::embedding_backward<T>(charge(stream, costs::embedding_backward(tokens, dy, dtable, write)), tokens, dy, dtable,
                              write);
}

template <class T>
void Cuda::cross_entropy(Stream& stream, Tensor<T> logits, Tensor<const std::int32_t> targets, float scale,
                         Tensor<double> loss) {
  const costs::Cost cost = costs::cross_entropy(logits, targets, loss, 2);
  Arena::Frame frame(stream.arena());
  const auto losses = frame.allocate<double>({logits.rows()}, MemoryKind::scratch);
  cuda::cross_entropy<T>(charge(stream, cost), logits, targets, scale, losses);
  cuda::add_up(lane_of(stream), losses, loss);
}

template <class T>
void Cuda::cross_entropy_loss(Stream& stream, Tensor<const T> logits, Tensor<const std::int32_t> targets,
                              Tensor<double> loss) {
  const costs::Cost cost = costs::cross_entropy(logits, targets, loss, 1);
  Arena::Frame frame(stream.arena());
  const auto losses = frame.allocate<double>({logits.rows()}, MemoryKind::scratch);
  cuda::cross_entropy_losses<T>(charge(stream, cost), logits, targets, losses);
  cuda::add_up(lane_of(stream), losses, loss);
}

template <class T>
void Cuda::cross_entropy_fold(Stream& stream, Tensor<const T> logits, std::int64_t first,
                              Tensor<const std::int32_t> targets, Tensor<double> state) {
  const costs::Cost cost = costs::cross_entropy_block(logits, targets, state, 1);
  cuda::cross_entropy_fold<T>(charge(stream, cost), logits, first, targets, state);
}

void Cuda::cross_entropy_sum(Stream& stream, Tensor<const double> state, Tensor<double> loss) {
  cuda::add_up_states(charge(stream, costs::cross_entropy_sum(state, loss)), state, loss);
}

template <class T>
void Cuda::cross_entropy_gradient(Stream& stream, Tensor<T> logits, std::int64_t first,
                                  Tensor<const std::int32_t> targets, float scale, Tensor<const double> state) {
  const costs::Cost cost = costs::cross_entropy_block(Tensor<const T>(logits), targets, state, 2);
  cuda::cross_entropy_gradient<T>(charge(stream, cost), logits, first, targets, scale, state);
}

template <class T>
void Cuda::add(Stream& stream, Tensor<const T> x, Tensor<T> y) {
  cuda::add<T>(charge(stream, costs::add(x, y)), x, y);
}

template <class X, class Y>
void Cuda::copy(Stream& stream, Tensor<const X> x, Tensor<Y> y) {
  const cuda::Lane lane = charge(stream, costs::copy(x, y));
  const bool as_it_is = std::is_same_v<X, Y> && x.contiguous() && y.contiguous();
  if (as_it_is)
    move(stream, reinterpret_cast<const std::byte*>(x.data()), reinterpret_cast<std::byte*>(y.data()), x.bytes());
  else
    cuda::copy<X, Y>(lane, x, y);
}

template <class T>
void Cuda::fill(Stream& stream, Tensor<T> y, float value) {
  cuda::fill<T>(charge(stream, costs::fill(y)), y, value);
}

void Cuda::sum_of_squares(Stream& stream, Tensor<const float> x, Tensor<double> sum) {
  const costs::Cost cost = costs::sum_of_squares(x, sum);
  Arena::Frame frame(stream.arena());
  const auto partials = frame.allocate<double>({ceil_divide(x.numel(), costs::sum_chunk)}, MemoryKind::scratch);
  cuda::squares(charge(stream, cost), x, partials);
  cuda::add_up(lane_of(stream), partials, sum);
}

void Cuda::decide_step(Stream& stream, const StepRules& rules, Tensor<const StepInputs> inputs,
                       Tensor<const double> sums, Tensor<StepDecision> step) {
  cuda::decide_step(lane_of(stream), rules, inputs.data(), sums.data(), costs::ranks_of(sums), step.data());
}

void Cuda::adamw(Stream& stream, const AdamWRules& rules, Tensor<const StepDecision> step, Tensor<float> main,
                 Tensor<float> first_moment, Tensor<float> second_moment, Tensor<const float> gradient,
                 Tensor<bf16> model) {
  const costs::Cost cost = costs::adamw(main, first_moment, second_moment, gradient, model);
  cuda::adamw(charge(stream, cost), rules, step.data(), main, first_moment, second_moment, gradient, model);
}

#define FSDP_CUDA_OPERATIONS(T)                                                                                       \
  template void Cuda::rms_norm<T>(Stream&, Tensor<const T>, Tensor<const T>, float, Tensor<T>, Tensor<float>);        \
  template void Cuda::rms_norm_backward<T>(Stream&, Tensor<const T>, Tensor<const T>, Tensor<const float>,            \
                                           Tensor<const T>, Tensor<T>, Write, Tensor<float>, Write);                  \
  template void Cuda::rope<T>(Stream&, Tensor<T>, Tensor<const float>, Rotation, CumulativeLengths);                  \
  template void Cuda::attention<T>(Stream&, const AttentionShape&, Tensor<const T>, Tensor<const T>, Tensor<const T>, \
                                   Tensor<T>, Tensor<float>);                                                         \
  template void Cuda::attention_backward<T>(Stream&, const AttentionShape&, Tensor<const T>, Tensor<const T>,         \
                                            Tensor<const T>, Tensor<const T>, Tensor<const float>, Tensor<const T>,   \
                                            Tensor<T>, Tensor<T>, Tensor<T>);                                         \
  template void Cuda::swiglu<T>(Stream&, Tensor<const T>, Tensor<const T>, Tensor<T>);                                \
  template void Cuda::swiglu_backward<T>(Stream&, Tensor<T>, Tensor<T>, Tensor<T>);                                   \
  template void Cuda::embedding<T>(Stream&, Tensor<const T>, Tensor<const std::int32_t>, Tensor<T>);                  \
  template void Cuda::embedding_backward<T>(Stream&, Tensor<const std::int32_t>, Tensor<const T>, Tensor<float>,      \
                                            Write);                                                                   \
  template void Cuda::cross_entropy<T>(Stream&, Tensor<T>, Tensor<const std::int32_t>, float, Tensor<double>);        \
  template void Cuda::cross_entropy_loss<T>(Stream&, Tensor<const T>, Tensor<const std::int32_t>, Tensor<double>);    \
  template void Cuda::cross_entropy_fold<T>(Stream&, Tensor<const T>, std::int64_t, Tensor<const std::int32_t>,       \
                                            Tensor<double>);                                                          \
  template void Cuda::cross_entropy_gradient<T>(Stream&, Tensor<T>, std::int64_t, Tensor<const std::int32_t>, float,  \
                                                Tensor<const double>);                                                \
  template void Cuda::add<T>(Stream&, Tensor<const T>, Tensor<T>);                                                    \
  template void Cuda::copy<T, float>(Stream&, Tensor<const T>, Tensor<float>);                                        \
  template void Cuda::copy<T, bf16>(Stream&, Tensor<const T>, Tensor<bf16>);                                          \
  template void Cuda::copy<T, f16>(Stream&, Tensor<const T>, Tensor<f16>);                                            \
  template void Cuda::fill<T>(Stream&, Tensor<T>, float);
FSDP_CUDA_OPERATIONS(float)
FSDP_CUDA_OPERATIONS(bf16)
FSDP_CUDA_OPERATIONS(f16)
template void Cuda::fill<double>(Stream&, Tensor<double>, float);

}  // namespace fsdp::device
