// SPDX-License-Identifier: Apache-2.0
/// @file
/// A part of a parameter that a rank holds. Its type has no strategy, so that stacks of one precision share it.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp {

/// A part of a parameter that this rank holds; the views are into the buffers at rest.
template <class Main, class Compute, class Accumulate>
struct ParameterShard {
  const Parameter* parameter = nullptr;
  int group = 0;           ///< index of its group
  std::int64_t begin = 0;  ///< first element, in the whole tensor
  Tensor<Main> main;       ///< empty if the shard is frozen and main weights would be a separate copy
  Tensor<Compute> model;   ///< the same memory as `main` if there is one copy of the weights
  Tensor<const Accumulate> gradient;
  std::int64_t resting = 0;  ///< its first element among all trained ones of this rank: index into optimizer state
  bool trainable = true;
  bool owned = true;  ///< one rank among replicas owns a shard: it writes it to files and counts it in norms

  /// Whether the shard has main weights.
  bool has_main() const { return main.data() != nullptr; }
  /// Elements of the shard.
  std::int64_t count() const { return model.numel(); }
};

}  // namespace fsdp
