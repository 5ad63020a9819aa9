// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rotary position embedding (Su et al. 2021), Hugging Face's rotate_half layout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>

#include <fsdp/core/error.hpp>
#include <fsdp/core/tensor.hpp>
#include <fsdp/device/documents.hpp>
#include <fsdp/device/operation.hpp>

namespace fsdp::device {

/// Forward rotates a query or key to its position, backward rotates a gradient back.
enum class Rotation : std::uint8_t { forward, backward };

/// table [S, head_dim]: cos of position * theta^(-2i/d) for i < d/2, then sin.
struct RotaryTable {
  static constexpr std::string_view name = "rotary_table";

  float theta = 1e4f;
  Tensor<float> table = {};  // [S, head_dim]

  auto tensors() const { return std::tie(table); }
  Cost cost() const { return {.bytes = table.bytes()}; }
  void check() const {
    require(table.rank() == 2 && table.columns() % 2 == 0, "rotary_table: a table is [positions, even head dimension]");
  }
};

/// Rotates all heads of x in place, by halves; the i-th row of a document takes position i of the table. Without
/// documents each S rows are one.
template <class T>
struct Rope {
  static constexpr std::string_view name = "rope";

  Tensor<T> x = {};                // [T, heads * head_dim]
  Tensor<const float> table = {};  // [S, head_dim]
  Rotation rotation = Rotation::forward;
  CumulativeLengths documents = {};

  auto tensors() const { return std::tie(table, x); }
  Cost cost() const { return {.bytes = 2 * x.bytes() + std::min(x.rows(), table.rows()) * table.columns() * 4}; }
  void check() const {
    require(x.rank() == 2 && table.rank() == 2 && table.columns() > 0 && table.columns() % 2 == 0 &&
                x.columns() % table.columns() == 0 && (table.rows() > 0 || x.rows() == 0),
            "rope: heads of ", table.rank() == 2 ? table.columns() : 0, " do not divide ",
            x.rank() == 2 ? x.columns() : 0, " columns");
    require_documents(documents, x.rows(), table.rows());
  }
};

}  // namespace fsdp::device
