// SPDX-License-Identifier: Apache-2.0
/// @file
/// Functions that enqueue the kernels of one operation each, on checked arguments. T is float, bf16 or f16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/compute/attention.hpp>
#include <tessera/fsdp/device/compute/matmul.hpp>
#include <tessera/fsdp/device/compute/muon.hpp>
#include <tessera/fsdp/device/compute/norm.hpp>
#include <tessera/fsdp/device/compute/rope.hpp>
#include <tessera/fsdp/device/compute/vocabulary.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>

#include "../optimizer_step.hpp"

struct CUstream_st;  // the struct that a cudaStream_t points to

namespace fsdp::device::cuda {

/// The stream that a kernel runs on, and whether it is the plain variant.
struct Lane {
  CUstream_st* stream = nullptr;
  bool plain = false;
};

/// Throws if the last kernel launch failed.
void require_launched(const char* kernel);

/// Instantiates `compute` or `run` of an operation for each type; the parameter after the operation is its Scratch, if
/// it needs any.
#define FSDP_FOR_TYPES(function, Where, Operation, ...)                              \
  template void function(Where, const Operation<float>& __VA_OPT__(, ) __VA_ARGS__); \
  template void function(Where, const Operation<bf16>& __VA_OPT__(, ) __VA_ARGS__);  \
  template void function(Where, const Operation<f16>& __VA_OPT__(, ) __VA_ARGS__);
/// Instantiates `compute` or `run` for each type to which values of type X are converted.
#define FSDP_FOR_TYPES_OF(X, function, Where, Operation)     \
  template void function(Where, const Operation<X, float>&); \
  template void function(Where, const Operation<X, bf16>&);  \
  template void function(Where, const Operation<X, f16>&);

/// Declares `compute` of an operation for any type.
#define FSDP_COMPUTES(Operation, ...) \
  template <class T>                  \
  void compute(Lane, const Operation<T>& __VA_OPT__(, ) __VA_ARGS__);

/// Enqueues the kernels of an operation. `memory`: its scratch, of the size that its `scratch` function returns
/// (scratch.hpp).
/// @{

// elements.cu
FSDP_COMPUTES(Add)
template <class X, class Y>
void compute(Lane, const Copy<X, Y>&);
FSDP_COMPUTES(Fill)
template <class X, class Y>
void compute(Lane, const Scale<X, Y>&);
FSDP_COMPUTES(SwiGlu)
FSDP_COMPUTES(SwiGluBackward)
FSDP_COMPUTES(AdamWStep, Scratch memory)

// steps.cu
FSDP_COMPUTES(SgdStep)
void compute(Lane, const MomentumDirection&);
FSDP_COMPUTES(Normalized)
FSDP_COMPUTES(Combination)
FSDP_COMPUTES(DirectionStep)

// rope.cu
void compute(Lane, const RotaryTable&);
FSDP_COMPUTES(Rope, Scratch memory)

// bias.cu
FSDP_COMPUTES(AddBias)
FSDP_COMPUTES(BiasBackward, Scratch memory)

// norm.cu
FSDP_COMPUTES(RmsNorm)
FSDP_COMPUTES(RmsNormBackward, Scratch memory)

// embedding.cu
FSDP_COMPUTES(Embedding)
FSDP_COMPUTES(EmbeddingBackward)

// cross_entropy.cu
FSDP_COMPUTES(CrossEntropy, Scratch memory)
FSDP_COMPUTES(CrossEntropyLoss, Scratch memory)
FSDP_COMPUTES(CrossEntropyFold)
FSDP_COMPUTES(CrossEntropyGradient)

// sums.cu
void compute(Lane, const CrossEntropySum&);
void compute(Lane, const SumOfSquares&, Scratch memory);
void compute(Lane, const LargestMagnitude&, Scratch memory);
void compute(Lane, const FixedPointSquares&, Scratch memory);
void compute(Lane, const DecideStep&);

// digest.cu
FSDP_COMPUTES(AddDigest, Scratch memory)

// attention_forward.cu, attention_backward.cu
FSDP_COMPUTES(Attention, Scratch memory)
FSDP_COMPUTES(AttentionBackward, Scratch memory)

// attention_cached.cu
FSDP_COMPUTES(KeepHeads)
FSDP_COMPUTES(CachedAttention)

/// @}

// sums.cu
/// sum[0] += values[0] + values[1] + ..., in a fixed order.
void add_up(Lane, Tensor<const double> values, Tensor<double> sum);
inline constexpr std::size_t most_parts = 256;
void sum_in_order(Lane, std::span<const std::byte* const> parts, DType stored, DType wire, std::int64_t count,
                  Write write, float* sum);
void round(Lane, const float* from, DType wire, std::int64_t count, std::byte* to);

// rope.cu
/// Returns the first row of every token's document, stored in `memory`; empty if documents are not packed. Reads
/// `documents` before it returns.
Tensor<const std::int32_t> first_rows(Lane, CumulativeLengths documents, std::int64_t tokens, Scratch memory);

}  // namespace fsdp::device::cuda
