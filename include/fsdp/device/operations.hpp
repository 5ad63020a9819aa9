// SPDX-License-Identifier: Apache-2.0
/// @file
/// What every device's operations take: operands, problem sizes, optimizer constants, counters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <fsdp/core/checked.hpp>
#include <fsdp/core/tensor.hpp>
#include <fsdp/device/documents.hpp>

namespace fsdp::device {

/// A matmul operand, as it lies in memory or transposed.
template <class T>
struct Operand {
  Tensor<const T> tensor;
  bool transposed = false;

  Operand(Tensor<const T> matrix, bool is_transposed = false) : tensor(matrix), transposed(is_transposed) {}
  Operand(Tensor<T> matrix) : tensor(matrix) {}

  std::int64_t rows() const { return transposed ? tensor.columns() : tensor.rows(); }
  std::int64_t columns() const { return transposed ? tensor.rows() : tensor.columns(); }
};

template <class T>
Operand<std::remove_const_t<T>> transposed(Tensor<T> matrix) {
  return {Tensor<const std::remove_const_t<T>>(matrix), true};
}

/// Sequences of equal length, laid one after the other. A token attends to itself and those before it in its document,
/// which is its sequence unless `documents` cuts that further.
struct AttentionShape {
  std::int64_t sequences = 1;
  std::int64_t sequence_length = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< divides heads; query heads [h * g, (h + 1) * g) share key-value head h
  std::int64_t head_dim = 0;
  CumulativeLengths documents = {};  ///< of packed documents; empty: each sequence is one

  std::int64_t tokens() const { return sequences * sequence_length; }
  /// Sum of the squares of the documents' lengths.
  std::int64_t squares() const {
    if (documents.empty()) return checked_multiply(tokens(), sequence_length);
    std::int64_t sum = 0;
    for (std::size_t i = 1; i < documents.size(); ++i)
      sum += checked_multiply(documents[i] - documents[i - 1], documents[i] - documents[i - 1]);
    return sum;
  }
  Document document(std::int64_t token) const { return document_of(documents, sequence_length, token); }
};

/// Forward rotates a query or key to its position, backward rotates a gradient back.
enum class Rotation : std::uint8_t { forward, backward };

/// Constants of AdamW for one tensor (Loshchilov and Hutter 2019, decoupled decay).
struct AdamWRules {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0;
};

/// What a run decides its steps by.
struct StepRules {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double clip = 0;              ///< largest global gradient norm; 0 is off
  bool skips_overflow = false;  ///< after gradients that are not finite, as with a loss scale
};

/// What the host gives a step.
struct StepInputs {
  double lr = 0;
  double loss_scale = 1;  ///< with which the gradients were made
};

/// What the device decides of a step (decide_step), for AdamW and, later, the host.
struct StepDecision {
  std::int64_t taken = 0;    ///< steps so far that changed the weights
  double loss = 0;           ///< the ranks' sum
  double norm = 0;           ///< of the unscaled gradients
  float lr = 0;              ///< of decay
  float step_size = 0;       ///< lr / (1 - beta1^taken)
  float root_scale = 1;      ///< 1 / sqrt(1 - beta2^taken)
  float gradient_scale = 1;  ///< min(1, clip / (norm + 1e-6)) / loss_scale
  std::int32_t skipped = 0;  ///< 1: this step leaves main weights and moments as they are
  std::int32_t stopped = 0;  ///< 1: and so do all later ones
};

/// What a device says to an optimizer that is given read-only weights.
template <class T>
constexpr void refuse_gathered_weights() {
  static_assert(!std::is_same_v<T, T>,
                "fsdp: an optimizer steps main weights at rest; gathered weights are read-only views that the next "
                "gather replaces. Give it the pieces of a ShardedModule (pieces(), main())");
}

/// One matmul [m, k] x [k, n] that was asked for.
struct MatmulRecord {
  std::int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  DType operands = DType::f32, result = DType::f32;
  bool accumulate = false;
};

/// Work that a stream was asked for since it was made.
struct Counters {
  std::int64_t matmul_flops = 0;
  std::int64_t attention_flops = 0;  ///< forward 2, backward 5 x heads x length^2 x head_dim per document: causal half
  std::int64_t elementwise_bytes = 0;            ///< least memory traffic of everything that is neither
  std::vector<MatmulRecord>* matmuls = nullptr;  ///< where to list them, or nullptr
};

}  // namespace fsdp::device
