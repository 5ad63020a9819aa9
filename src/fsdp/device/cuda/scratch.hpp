// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scratch sizes of Cuda's operations: functions of the problem alone, which do not query a device or library, so that
/// a dry run can call them on any machine.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/device/compute/attention.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operation.hpp>

#include "attention_cudnn.hpp"

namespace fsdp::device::cuda {

/// Bytes of workspace of every matmul. cuBLASLt chooses the best algorithm that does not need more.
inline constexpr std::int64_t matmul_workspace = std::int64_t{32} << 20;

/// Alignment of cuBLASLt's workspace. The arena's alignment is smaller, so scratch includes the bytes to align the
/// workspace.
inline constexpr std::int64_t workspace_alignment = 256;

inline std::int64_t matmul_scratch(const MatmulRecord& problem) {
  const bool no_products = problem.m == 0 || problem.n == 0 || problem.k == 0;
  return no_products ? 0 : matmul_workspace + workspace_alignment - alignment;
}

/// Maximum number of partial sums into which rows are added: two blocks per multiprocessor of a large GPU. The number
/// is the same on every device, so that results are identical.
inline constexpr std::int64_t most_row_parts = 256;
inline std::int64_t row_parts(std::int64_t rows) { return std::clamp<std::int64_t>(rows, 1, most_row_parts); }
inline std::int64_t row_sums_scratch(std::int64_t rows, std::int64_t columns) {
  return checked_multiply(row_parts(rows), columns) * 4;
}

/// Returns the bytes of the first row of every token's document (int32). They are always reserved, since plans do not
/// know whether documents are packed.
inline std::int64_t documents_scratch(std::int64_t tokens) { return checked_multiply(tokens, 4); }

/// Returns the offset of backward's dout . out per query and head (float), after the first rows.
inline std::int64_t attention_products_at(const AttentionShape& shape) {
  return round_up(documents_scratch(shape.tokens()), 64);
}

/// Returns the scratch bytes of Tessera's kernels or, in builds with cuDNN, the larger of these and cuDNN's workspace.
inline std::int64_t attention_scratch(const AttentionShape& shape, DType dtype, bool backward) {
  const std::int64_t products = backward ? checked_multiply(checked_multiply(shape.tokens(), shape.heads), 4) : 0;
  const std::int64_t own = checked_add(attention_products_at(shape), products);
  return has_cudnn ? std::max(own, cudnn_scratch(shape, dtype, backward)) : own;
}

}  // namespace fsdp::device::cuda
