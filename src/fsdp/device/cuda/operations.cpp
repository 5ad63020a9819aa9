// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cuda's operations: each enqueues its kernels. `enqueue` has checked arguments, counted work and allocated scratch.
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

}  // namespace

void Cuda::round(Queue& queue, const float* from, DType wire, std::int64_t count, std::byte* to) {
  cuda::round(lane_of(queue), from, wire, count, to);
}

static_assert(Cuda::most_parts == cuda::most_parts);
void Cuda::sum_in_order(Queue& queue, std::span<const std::byte* const> parts, DType stored, DType wire,
                        std::int64_t count, Write write, float* sum) {
  require(!parts.empty() && parts.size() <= cuda::most_parts, "sum_in_order: ", parts.size(), " parts; 1 to ",
          cuda::most_parts);
  cuda::sum_in_order(lane_of(queue), parts, stored, wire, count, write, sum);
}

/// Defines `run` of an operation that only enqueues its kernels.
#define FSDP_RUN(...) \
  void run(Cuda::Stream& stream, const __VA_ARGS__& op) { cuda::compute(lane_of(stream), op); }
#define FSDP_RUN_IN_SCRATCH(...) \
  void run(Cuda::Stream& stream, const __VA_ARGS__& op, Scratch memory) { cuda::compute(lane_of(stream), op, memory); }
#define FSDP_RUN_TYPED(Operation) \
  template <ComputedBy<Cuda> T>   \
  FSDP_RUN(Operation<T>)          \
  FSDP_FOR_TYPES(run, Cuda::Stream&, Operation)
#define FSDP_RUN_TYPED_IN_SCRATCH(Operation) \
  template <ComputedBy<Cuda> T>              \
  FSDP_RUN_IN_SCRATCH(Operation<T>)          \
  FSDP_FOR_TYPES(run, Cuda::Stream&, Operation, Scratch)
FSDP_TYPED_OPERATIONS(FSDP_RUN_TYPED, FSDP_RUN_TYPED_IN_SCRATCH)
FSDP_UNTYPED_OPERATIONS(FSDP_RUN, FSDP_RUN_IN_SCRATCH)
FSDP_RUN(Fill<double>)
template <ComputedBy<Cuda> T, WeightFor<T> W>
FSDP_RUN(RmsNorm<T, W>)
template <ComputedBy<Cuda> T, WeightFor<T> W>
FSDP_RUN_IN_SCRATCH(RmsNormBackward<T, W>)
template <ComputedBy<Cuda> T, WeightFor<T> W>
FSDP_RUN(Embedding<T, W>)

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const Attention<T>& op, Scratch memory) {
  if constexpr (cuda::has_cudnn)
    if (cuda::attention_through_cudnn(stream, cuda::attention_call(op.shape, op.lse, op.q, op.k, op.v, op.out),
                                      memory.as<std::uint8_t>({memory.bytes})))
      return;
  cuda::compute(lane_of(stream), op, memory);
}

template <ComputedBy<Cuda> T>
void run(Cuda::Stream& stream, const AttentionBackward<T>& op, Scratch memory) {
  if constexpr (cuda::has_cudnn) {
    const auto& [shape, q, k, v, out, lse, dout, dq, dk, dv] = op;
    const auto call = cuda::attention_call(shape, lse, q, k, v, out, dout, dq, dk, dv);
    if (cuda::attention_through_cudnn(stream, call, memory.as<std::uint8_t>({memory.bytes}))) return;
  }
  cuda::compute(lane_of(stream), op, memory);
}

template <ComputedBy<Cuda> X, ComputedBy<Cuda> Y>
void run(Cuda::Stream& stream, const Copy<X, Y>& op) {
  const bool as_it_is = std::is_same_v<X, Y> && op.x.contiguous() && op.y.contiguous();
  if (as_it_is)
    Cuda::move(stream, reinterpret_cast<const std::byte*>(op.x.data()), reinterpret_cast<std::byte*>(op.y.data()),
               op.x.bytes());
  else
    cuda::compute(lane_of(stream), op);
}

template <ComputedBy<Cuda> X, ComputedBy<Cuda> Y>
void run(Cuda::Stream& stream, const Scale<X, Y>& op) {
  cuda::compute(lane_of(stream), op);
}

FSDP_FOR_WEIGHTS(run, Cuda::Stream&, RmsNorm)
FSDP_FOR_WEIGHTS(run, Cuda::Stream&, RmsNormBackward, Scratch)
FSDP_FOR_WEIGHTS(run, Cuda::Stream&, Embedding)
FSDP_FOR_TYPES(run, Cuda::Stream&, Attention, Scratch)
FSDP_FOR_TYPES(run, Cuda::Stream&, AttentionBackward, Scratch)
FSDP_FOR_TYPES(run, Cuda::Stream&, Scale)
template void run(Cuda::Stream&, const Scale<bf16, float>&);
template void run(Cuda::Stream&, const Scale<f16, float>&);
FSDP_FOR_TYPES_OF(float, run, Cuda::Stream&, Copy)
FSDP_FOR_TYPES_OF(bf16, run, Cuda::Stream&, Copy)
FSDP_FOR_TYPES_OF(f16, run, Cuda::Stream&, Copy)

}  // namespace fsdp::device
