// SPDX-License-Identifier: Apache-2.0
/// @file
/// A tensor in a file: its name and its full, unsharded shape.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>

namespace fsdp::checkpoint {

/// A tensor of a file.
struct NamedShape {
  std::string name = {};                 ///< Hugging Face's, such as "model.norm.weight"
  std::vector<std::int64_t> shape = {};  ///< [out, in] for a linear layer's weight

  bool adapter = false;  ///< an adapter's weight, not the model's own (tessera/fsdp/nn/low_rank.hpp)

  friend bool operator==(const NamedShape&, const NamedShape&) = default;
};

/// Returns the number of elements of a shape; 1 for an empty shape. Throws InputError if the product overflows.
inline std::int64_t elements_of(std::span<const std::int64_t> shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements = checked_multiply(elements, extent);
  return elements;
}

/// "[256, 64]".
inline std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace fsdp::checkpoint
