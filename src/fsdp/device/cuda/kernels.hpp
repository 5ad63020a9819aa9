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
#include <tessera/fsdp/device/operations/codec.hpp>
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
/// The same, and for 16-bit types with a weight in float.
#define FSDP_FOR_WEIGHTS(function, Where, Operation, ...)                                  \
  FSDP_FOR_TYPES(function, Where, Operation __VA_OPT__(, ) __VA_ARGS__)                    \
  template void function(Where, const Operation<bf16, float>& __VA_OPT__(, ) __VA_ARGS__); \
  template void function(Where, const Operation<f16, float>& __VA_OPT__(, ) __VA_ARGS__);
/// Instantiates `compute` or `run` for each type to which values of type X are converted.
#define FSDP_FOR_TYPES_OF(X, function, Where, Operation)     \
  template void function(Where, const Operation<X, float>&); \
  template void function(Where, const Operation<X, bf16>&);  \
  template void function(Where, const Operation<X, f16>&);

// Lists of the operations whose `run` only enqueues kernels, by source: PLAIN(Operation) or, if the operation takes
// scratch, IN_SCRATCH(Operation).
// clang-format off
#define FSDP_TYPED_OPERATIONS(PLAIN, IN_SCRATCH) /* over elements of one type */                                       \
  /* elements.cu */         PLAIN(Add) PLAIN(Fill) PLAIN(SwiGlu) PLAIN(SwiGluBackward) IN_SCRATCH(AdamWStep)           \
  /* codec.cu */            PLAIN(EncodeBlocks) PLAIN(DecodeBlocks) IN_SCRATCH(CodedAdamWStep)                        \
  /* steps.cu */            PLAIN(SgdStep) PLAIN(Normalized) PLAIN(Combination) PLAIN(DirectionStep)                   \
  /* rope.cu, digest.cu */  IN_SCRATCH(Rope) IN_SCRATCH(AddDigest)                                                     \
  /* bias.cu */             PLAIN(AddBias) IN_SCRATCH(BiasBackward)                                                    \
  /* embedding.cu */        PLAIN(EmbeddingBackward)                                                                   \
  /* cross_entropy.cu */    IN_SCRATCH(CrossEntropy) IN_SCRATCH(CrossEntropyLoss)                                      \
                            PLAIN(CrossEntropyFold) PLAIN(CrossEntropyGradient)                                        \
  /* attention_cached.cu */ PLAIN(KeepHeads) PLAIN(CachedAttention)
#define FSDP_UNTYPED_OPERATIONS(PLAIN, IN_SCRATCH)                                                                     \
  /* steps.cu, rope.cu */   PLAIN(MomentumDirection) PLAIN(RotaryTable)                                                \
  /* sums.cu */             PLAIN(CrossEntropySum) PLAIN(DecideStep)                                                   \
                            IN_SCRATCH(SumOfSquares) IN_SCRATCH(LargestMagnitude) IN_SCRATCH(FixedPointSquares)
// clang-format on

// `compute` enqueues the kernels of an operation. The last parameter, if any, is its scratch, of the size that its
// `scratch` function returns (scratch.hpp).
#define FSDP_COMPUTES(Operation) void compute(Lane, const Operation&);
#define FSDP_COMPUTES_IN_SCRATCH(Operation) void compute(Lane, const Operation&, Scratch);
#define FSDP_COMPUTES_TYPED(Operation) \
  template <class T>                   \
  FSDP_COMPUTES(Operation<T>)
#define FSDP_COMPUTES_TYPED_IN_SCRATCH(Operation) \
  template <class T>                              \
  FSDP_COMPUTES_IN_SCRATCH(Operation<T>)
FSDP_TYPED_OPERATIONS(FSDP_COMPUTES_TYPED, FSDP_COMPUTES_TYPED_IN_SCRATCH)
FSDP_UNTYPED_OPERATIONS(FSDP_COMPUTES, FSDP_COMPUTES_IN_SCRATCH)
FSDP_COMPUTES_TYPED_IN_SCRATCH(Attention)          // attention_forward.cu
FSDP_COMPUTES_TYPED_IN_SCRATCH(AttentionBackward)  // attention_backward.cu
template <class T, class W>
void compute(Lane, const RmsNorm<T, W>&);  // norm.cu
template <class T, class W>
void compute(Lane, const RmsNormBackward<T, W>&, Scratch);  // norm_backward.cu
template <class T, class W>
void compute(Lane, const Embedding<T, W>&);  // embedding.cu
template <class X, class Y>
void compute(Lane, const Copy<X, Y>&);  // elements.cu
template <class X, class Y>
void compute(Lane, const Scale<X, Y>&);  // elements.cu

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
