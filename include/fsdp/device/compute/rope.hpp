// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rotary position embedding (Su et al. 2021), Hugging Face's rotate_half layout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/documents.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace fsdp::device {

/// The direction: forward rotates a query or key to its position, backward rotates a gradient back.
enum class Rotation : std::uint8_t { forward, backward };

/// Scaling of rotary frequencies, which extends a model's context beyond the length that it was first trained on.
struct RotaryScaling {
  /// Types of scaling, with the names used in config.json.
  enum class Kind : std::uint8_t {
    none,
    linear,  ///< divides every frequency by `factor` (Chen et al. 2023, position interpolation)
    llama3,  ///< divides frequencies below `low` turns per `original` positions, keeps those above `high` turns
    yarn,    ///< divides them for pairs from `high` on, not for pairs up to `low` (Peng et al. 2023, NTK by parts)
  };
  Kind kind = Kind::none;
  double factor = 1;
  double low = 0, high = 0;  ///< frequencies between these bounds are interpolated linearly
  double original = 0;       ///< context length of the original training
  double magnitude = 1;      ///< factor of cos and sin

  friend bool operator==(const RotaryScaling&, const RotaryScaling&) = default;
};

/// Writes the table [S, head_dim] of rotations. Each row contains cos(position * frequency(i)) for i < head_dim / 2,
/// followed by the sines. frequency(i) is theta^(-2i / head_dim), scaled. Row i is for position i, or for positions[i]
/// if `positions` is given.
struct RotaryTable {
  static constexpr std::string_view name = "rotary_table";

  float theta = 1e4f;
  RotaryScaling scaling = {};
  Tensor<float> table = {};                   // [S, head_dim]
  Tensor<const std::int32_t> positions = {};  // [S], or empty

  auto tensors() const { return std::tie(positions, table); }
  Cost cost() const { return {.bytes = table.bytes()}; }
  void check() const {
    require(table.rank() == 2 && table.columns() % 2 == 0, "rotary_table: a table is [positions, even head dimension]");
    require(positions.numel() == 0 || positions.numel() == table.rows(), "rotary_table: ", positions.numel(),
            " positions for ", table.rows(), " rows");
  }
};

/// Rotates all heads of x in place (rotate_half). The i-th token of a document uses row i of the table. Without
/// `documents`, every S rows are one document.
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
