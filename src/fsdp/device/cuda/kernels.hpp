// SPDX-License-Identifier: Apache-2.0
/// @file
/// Functions that enqueue the kernels of one operation each, on checked arguments. T is float, bf16 or f16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/compute/attention.hpp>
#include <tessera/fsdp/device/compute/bias.hpp>
#include <tessera/fsdp/device/compute/cached_attention.hpp>
#include <tessera/fsdp/device/compute/cross_entropy.hpp>
#include <tessera/fsdp/device/compute/embedding.hpp>
#include <tessera/fsdp/device/compute/muon.hpp>
#include <tessera/fsdp/device/compute/norm.hpp>
#include <tessera/fsdp/device/compute/rope.hpp>
#include <tessera/fsdp/device/compute/swiglu.hpp>
#include <tessera/fsdp/device/operations/adamw.hpp>
#include <tessera/fsdp/device/operations/digest.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/device/operations/sgd.hpp>

#include "../optimizer_step.hpp"

struct CUstream_st;  // what a cudaStream_t points to

namespace fsdp::device::cuda {

/// The stream that a kernel runs on, and whether it is the plain variant.
struct Lane {
  CUstream_st* stream = nullptr;
  bool plain = false;
};

/// Throws if the last kernel launch failed.
void require_launched(const char* kernel);

/// Enqueues the kernels of an operation. `memory`: its scratch, as large as its `scratch` says (scratch.hpp).
/// @{

// elements.cu
template <class T>
void compute(Lane, const Add<T>&);
template <class X, class Y>
void compute(Lane, const Copy<X, Y>&);
template <class T>
void compute(Lane, const Fill<T>&);
template <class X, class Y>
void compute(Lane, const Scale<X, Y>&);
template <class T>
void compute(Lane, const SwiGlu<T>&);
template <class T>
void compute(Lane, const SwiGluBackward<T>&);
template <class Model>
void compute(Lane, const AdamWStep<Model>&, Scratch memory);

// steps.cu
template <class Model>
void compute(Lane, const SgdStep<Model>&);
void compute(Lane, const MomentumDirection&);
template <class T>
void compute(Lane, const Normalized<T>&);
template <class T>
void compute(Lane, const Combination<T>&);
template <class T>
void compute(Lane, const DirectionStep<T>&);

// rope.cu
void compute(Lane, const RotaryTable&);
template <class T>
void compute(Lane, const Rope<T>&, Scratch memory);

// bias.cu
template <class T>
void compute(Lane, const AddBias<T>&);
template <class T>
void compute(Lane, const BiasBackward<T>&, Scratch memory);

// norm.cu
template <class T>
void compute(Lane, const RmsNorm<T>&);
template <class T>
void compute(Lane, const RmsNormBackward<T>&, Scratch memory);

// embedding.cu
template <class T>
void compute(Lane, const Embedding<T>&);
template <class T>
void compute(Lane, const EmbeddingBackward<T>&);

// cross_entropy.cu
template <class T>
void compute(Lane, const CrossEntropy<T>&, Scratch memory);
template <class T>
void compute(Lane, const CrossEntropyLoss<T>&, Scratch memory);
template <class T>
void compute(Lane, const CrossEntropyFold<T>&);
template <class T>
void compute(Lane, const CrossEntropyGradient<T>&);

// sums.cu
void compute(Lane, const CrossEntropySum&);
void compute(Lane, const SumOfSquares&, Scratch memory);
void compute(Lane, const LargestMagnitude&, Scratch memory);
void compute(Lane, const FixedPointSquares&, Scratch memory);
void compute(Lane, const DecideStep&);

// digest.cu
template <class T>
void compute(Lane, const AddDigest<T>&, Scratch memory);

// attention_forward.cu, attention_backward.cu
template <class T>
void compute(Lane, const Attention<T>&, Scratch memory);
template <class T>
void compute(Lane, const AttentionBackward<T>&, Scratch memory);

// attention_cached.cu
template <class T>
void compute(Lane, const KeepHeads<T>&);
template <class T>
void compute(Lane, const CachedAttention<T>&);

/// @}

/// Instantiates `compute` of an operation for each type; behind the operation stands Scratch where it takes any.
#define FSDP_COMPUTE(Operation, ...)                                               \
  template void compute(Lane, const Operation<float>& __VA_OPT__(, ) __VA_ARGS__); \
  template void compute(Lane, const Operation<bf16>& __VA_OPT__(, ) __VA_ARGS__);  \
  template void compute(Lane, const Operation<f16>& __VA_OPT__(, ) __VA_ARGS__);

// sums.cu
/// sum[0] += values[0] + values[1] + ..., in a fixed order.
void add_up(Lane, Tensor<const double> values, Tensor<double> sum);
inline constexpr std::size_t most_parts = 256;
void sum_in_order(Lane, std::span<const std::byte* const> parts, DType stored, DType wire, std::int64_t count,
                  Write write, float* sum);
void round(Lane, const float* from, DType wire, std::int64_t count, std::byte* to);

// rope.cu
/// Returns the first row of every token's document, in `memory`; empty without packed documents. Reads `documents`
/// before it returns.
Tensor<const std::int32_t> first_rows(Lane, CumulativeLengths documents, std::int64_t tokens, Scratch memory);

}  // namespace fsdp::device::cuda
