// SPDX-License-Identifier: Apache-2.0
/// @file
/// The decision when attention uses cuDNN, in which parts, and with how much scratch. This is plain arithmetic, which
/// gives the same results on machines without cuDNN; attention_cudnn.cpp makes the calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/compute/attention.hpp>
#include <tessera/fsdp/device/cuda.hpp>

namespace fsdp::device::cuda {

/// Whether this build includes cuDNN. If so, plans always include cuDNN's scratch, even if Tessera's kernels compute.
#if defined(FSDP_CUDNN)
inline constexpr bool has_cudnn = true;
#else
inline constexpr bool has_cudnn = false;
#endif

/// Which kernels may compute attention.
enum class AttentionBy : std::uint8_t {
  either,  ///< cuDNN for the calls that it supports, Tessera's kernels for the rest
  own,
  cudnn  ///< only cuDNN: an unsupported call is an error, so that timings are certainly cuDNN's
};
/// Parses TESSERA_CUDA_ATTENTION; `flag` may be nullptr.
inline AttentionBy attention_by(const char* flag, bool built_with_cudnn = has_cudnn) {
  const std::string_view wish = flag == nullptr ? "" : flag;
  if (wish.empty()) return AttentionBy::either;
  if (wish == "own") return AttentionBy::own;
  require<InputError>(wish == "cudnn", "TESSERA_CUDA_ATTENTION is '", wish, "'; it may be own or cudnn, or unset");
  require<InputError>(built_with_cudnn,
                      "TESSERA_CUDA_ATTENTION is cudnn, and this build has no cuDNN; configure with "
                      "-DTESSERA_ENABLE_CUDNN=ON, which says what is missing");
  return AttentionBy::cudnn;
}

/// A matrix of adjacent heads, [tokens, heads * head_dim].
struct HeadMatrix {
  std::byte* data = nullptr;  ///< written only if the operation writes this matrix
  std::int64_t row_stride = 0;
};

/// One attention call, forward or backward, with its element type as a value.
struct AttentionCall {
  enum Matrix : std::size_t { q, k, v, out, dout, dq, dk, dv };  ///< the last four only in backward

  AttentionShape shape;
  DType dtype = DType::f32;
  std::array<HeadMatrix, 8> matrices = {};
  std::byte* lse = nullptr;  ///< float, [sequences * heads, length], contiguous

  bool backward() const { return matrices[dq].data != nullptr; }
  std::size_t count() const { return backward() ? 8 : 4; }
  std::int64_t heads(std::size_t matrix) const {
    return matrix == k || matrix == v || matrix == dk || matrix == dv ? shape.kv_heads : shape.heads;
  }
  /// Returns the strides of [sequence, head, token, column], the order in which cuDNN indexes elements.
  std::array<std::int64_t, 4> dims(std::size_t matrix) const {
    return {shape.sequences, heads(matrix), shape.sequence_length, shape.head_dim};
  }
  std::array<std::int64_t, 4> strides(std::size_t matrix) const {
    const std::int64_t row = matrices[matrix].row_stride;
    return {shape.sequence_length * row, shape.head_dim, row, 1};
  }
  std::array<std::int64_t, 4> lse_dims() const { return {shape.sequences, shape.heads, shape.sequence_length, 1}; }
  std::array<std::int64_t, 4> lse_strides() const {
    return {shape.heads * shape.sequence_length, shape.sequence_length, 1, 1};
  }
};

/// Makes an AttentionCall. `matrices`: in the order of AttentionCall::Matrix, four in forward and eight in backward.
template <class... T>
AttentionCall attention_call(const AttentionShape& shape, Tensor<const float> lse, Tensor<T>... matrices) {
  static_assert(sizeof...(T) == 4 || sizeof...(T) == 8);
  const auto writable = [](const auto* data) {
    return const_cast<std::byte*>(reinterpret_cast<const std::byte*>(data));
  };
  return {.shape = shape,
          .dtype = std::array{dtype_of<T>()...}[0],
          .matrices = {HeadMatrix{writable(matrices.data()), matrices.row_stride()}...},
          .lse = writable(lse.data())};
}

/// The part of an attention call that one cuDNN call computes: a number of sequences and of key-value heads, with their
/// query heads.
struct AttentionPart {
  std::int64_t sequences = 0;
  std::int64_t kv_heads = 0;  ///< all heads if there are several sequences; 0: not even one head fits
  friend bool operator==(const AttentionPart&, const AttentionPart&) = default;
};

/// Limit of the scratch of one backward part (1.25 GiB): eight heads of 8192 tokens and 128 columns. Tests lower it.
inline std::int64_t cudnn_limit = std::int64_t{5} << 28;
/// Additional scratch that any graph may use beyond the sizes below; cuDNN 9.19 needs 256 bytes.
inline constexpr std::int64_t cudnn_slack = 64 << 10;

/// Returns the scratch bytes of the deterministic backward per query head. To sum dQ in a fixed order, cuDNN first
/// stores the gradients of all scores, in T, in whole tiles of 64 queries by 128 keys. It also stores dout . out in
/// float and, if heads share keys, dK and dV of every query head in T. Therefore scratch is quadratic in the length
/// instead of linear, and a call computes only a few heads. (From version 9.25 on,
/// CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT selects a slower algorithm that needs less.)
inline std::int64_t cudnn_backward_scratch_per_head(const AttentionShape& shape) {
  const std::int64_t length = shape.sequence_length, scores = round_up(length, 64) * round_up(length, 128);
  const std::int64_t shared = shape.heads == shape.kv_heads ? 0 : 2 * 2 * length * shape.head_dim;
  return 2 * scores + 4 * length + shared;
}

/// Returns whether cuDNN supports these sizes and types. Plans have no other information; packed documents and
/// alignment are checked later, by why_not_cudnn.
inline bool cudnn_takes_sizes(const AttentionShape& shape, DType dtype) {
  return !shape.windowed() && (dtype == DType::bf16 || dtype == DType::f16) && shape.head_dim % 8 == 0 &&
         shape.head_dim > 0 && shape.head_dim <= 128 && shape.sequence_length >= 2 && shape.sequences > 0 &&
         shape.kv_heads > 0;
}

/// Returns the largest part of backward whose scratch stays within the limit. All parts have equal size, so that one
/// graph computes them all.
inline AttentionPart cudnn_part(const AttentionShape& shape, bool backward) {
  if (!backward) return {shape.sequences, shape.kv_heads};
  if (shape.sequence_length > 1 << 16) return {};  // larger than any limit, and close to 64-bit overflow
  const std::int64_t fit = (cudnn_limit - cudnn_slack) / cudnn_backward_scratch_per_head(shape);  // query heads
  for (std::int64_t n = shape.sequences; n > 0; --n)
    if (shape.sequences % n == 0 && n * shape.heads <= fit) return {n, shape.kv_heads};
  for (std::int64_t n = shape.kv_heads; n > 0; --n)
    if (shape.kv_heads % n == 0 && n * (shape.heads / shape.kv_heads) <= fit) return {1, n};
  return {};
}

/// Returns the bytes that cuDNN may use; a graph that needs more is not used. Returns 0 if cuDNN is not used.
inline std::int64_t cudnn_scratch(const AttentionShape& shape, DType dtype, bool backward) {
  if (!cudnn_takes_sizes(shape, dtype)) return 0;
  const AttentionPart part = cudnn_part(shape, backward);
  if (part.kv_heads == 0) return 0;
  if (!backward) return cudnn_slack;
  const std::int64_t heads = part.sequences * part.kv_heads * (shape.heads / shape.kv_heads);
  return heads * cudnn_backward_scratch_per_head(shape) + cudnn_slack;
}

/// Returns the reason why cuDNN is not used for this call; nullptr if it is used.
inline const char* why_not_cudnn(const AttentionCall& call) {
  const AttentionShape& shape = call.shape;
  if (shape.windowed()) return "sliding windows are our own kernels'";
  if (!cudnn_takes_sizes(shape, call.dtype))
    return "it takes bf16 and f16, sequences of 2 tokens or more, and head sizes that are multiples of 8 up to 128";
  if (!shape.documents.empty()) return "packed documents are our own kernels'";
  const auto aligned = [](const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; };
  for (std::size_t i = 0; i < call.count(); ++i)
    if (!aligned(call.matrices[i].data) || call.matrices[i].row_stride % 8 != 0)
      return "rows must start at multiples of 16 bytes";
  if (!aligned(call.lse)) return "lse must start at a multiple of 16 bytes";
  const AttentionPart part = cudnn_part(shape, call.backward());
  if (part.kv_heads == 0)
    return "its deterministic backward would take more than 1.25 GiB of scratch for one key-value head";
  const bool whole = part.sequences == shape.sequences && part.kv_heads == shape.kv_heads;
  if (!whole && shape.sequence_length % 4 != 0)
    return "backward is done in parts, and a length that is no multiple of 4 puts their lse at odd addresses";
  return nullptr;
}

/// Returns the calls of all parts, in order.
inline std::vector<AttentionCall> parts_of(const AttentionCall& call, const AttentionPart& part) {
  const AttentionShape& shape = call.shape;
  const std::int64_t group = shape.heads / shape.kv_heads;
  std::vector<AttentionCall> parts;
  for (std::int64_t sequence = 0; sequence < shape.sequences; sequence += part.sequences)
    for (std::int64_t kv_head = 0; kv_head < shape.kv_heads; kv_head += part.kv_heads) {
      AttentionCall& own = parts.emplace_back(call);
      own.shape.sequences = part.sequences;
      own.shape.kv_heads = part.kv_heads;
      own.shape.heads = part.kv_heads * group;
      for (std::size_t i = 0; i < call.count(); ++i) {
        const std::int64_t head = call.heads(i) == shape.kv_heads ? kv_head : kv_head * group;
        own.matrices[i].data += (sequence * call.strides(i)[0] + head * shape.head_dim) * size_of(call.dtype);
      }
      own.lse += (sequence * shape.heads + kv_head * group) * shape.sequence_length * size_of(DType::f32);
    }
  return parts;
}

/// Enqueues the call with cuDNN. Returns false if cuDNN cannot compute it; Tessera's kernels must then do so.
/// `workspace` has at least cudnn_scratch bytes. Defined only in builds with cuDNN.
bool attention_through_cudnn(const Cuda::Stream& stream, const AttentionCall& call, Tensor<std::uint8_t> workspace);

}  // namespace fsdp::device::cuda
