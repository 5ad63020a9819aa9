// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scratch that Cuda's operations take from the arena: functions of the problem alone, so that a dry run on any machine
/// knows them. Nothing here asks a device or a library.
#pragma once

#include <algorithm>
#include <cstdint>

#include <fsdp/core/checked.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/operation.hpp>
#include <fsdp/device/operations/attention.hpp>

#include "attention_cudnn.hpp"

namespace fsdp::device::cuda {

/// What every product may use. cuBLASLt picks the best algorithm that needs no more.
inline constexpr std::int64_t matmul_workspace = std::int64_t{32} << 20;

/// Where it wants the workspace to begin. The arena aligns to less: scratch has room for the rest.
inline constexpr std::int64_t workspace_alignment = 256;

inline std::int64_t matmul_scratch(const MatmulRecord& problem) {
  const bool no_products = problem.m == 0 || problem.n == 0 || problem.k == 0;
  return no_products ? 0 : matmul_workspace + workspace_alignment - alignment;
}

/// Parts into which rows are shared out where they are summed, each with its own sum: two blocks for each of a large
/// GPU's multiprocessors, and the same number everywhere, so that results are.
inline constexpr std::int64_t most_row_parts = 256;
inline std::int64_t row_parts(std::int64_t rows) { return std::clamp<std::int64_t>(rows, 1, most_row_parts); }
inline std::int64_t row_sums_scratch(std::int64_t rows, std::int64_t columns) {
  return checked_multiply(row_parts(rows), columns) * 4;
}

/// The first row of every token's document (int32), held whether there are documents or not: plans do not know them.
inline std::int64_t documents_scratch(std::int64_t tokens) { return checked_multiply(tokens, 4); }

/// Where backward keeps dout . out of every query and head (float), behind the first rows.
inline std::int64_t attention_products_at(const AttentionShape& shape) {
  return round_up(documents_scratch(shape.tokens()), 64);
}

/// One piece, used by whoever computes: what our kernels keep, or cuDNN's workspace in builds that have it.
inline std::int64_t attention_scratch(const AttentionShape& shape, DType dtype, bool backward) {
  const std::int64_t products = backward ? checked_multiply(checked_multiply(shape.tokens(), shape.heads), 4) : 0;
  const std::int64_t own = checked_add(attention_products_at(shape), products);
  return has_cudnn ? std::max(own, cudnn_scratch(shape, dtype, backward)) : own;
}

}  // namespace fsdp::device::cuda
