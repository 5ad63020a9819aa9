// SPDX-License-Identifier: Apache-2.0
/// @file
/// The description of a tensor in a file: its name and its full, unsharded shape.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>

namespace fsdp::checkpoint {

/// Name and shape of a tensor in a file.
struct NamedShape {
  std::string name = {};                 ///< name in Hugging Face's convention, such as "model.norm.weight"
  std::vector<std::int64_t> shape = {};  ///< extents, outer first; [out, in] for a linear layer's weight

  /// Whether this is an adapter's weight, not one of the base model (tessera/fsdp/nn/low_rank.hpp)
  bool adapter = false;

  friend bool operator==(const NamedShape&, const NamedShape&) = default;
};

/// Returns the number of elements of a shape; 1 for an empty shape. Throws InputError if the product overflows.
inline std::int64_t elements_of(std::span<const std::int64_t> shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements = checked_multiply(elements, extent);
  return elements;
}

/// Returns a shape as text, such as "[256, 64]".
inline std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace fsdp::checkpoint
