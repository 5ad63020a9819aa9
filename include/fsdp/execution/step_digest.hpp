// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names the digests of a training step. They are made in step_digests.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fsdp {

/// One digest of a step.
struct StepDigest {
  /// The digested tensor.
  enum class Kind : std::uint8_t {
    forward,   ///< of the residual stream [T, H] that a unit passed on
    backward,  ///< of its gradient [T, H] that a unit passed back
    gradient,  ///< of the gradient of a unit's parameters, summed over the step, before clipping
    weights,   ///< of their main weights after the step
  };
  Kind kind = Kind::forward;
  int piece = -1;    ///< of the step; -1 for gradients and weights
  std::string name;  ///< of the unit
  std::uint64_t bits = 0;

  friend bool operator==(const StepDigest&, const StepDigest&) = default;
};

/// Whether a digest is of a computation's output in one piece of a step.
constexpr bool is_stream(StepDigest::Kind kind) {
  return kind == StepDigest::Kind::forward || kind == StepDigest::Kind::backward;
}

/// Returns "forward", "backward", "gradient" or "weights".
constexpr std::string_view name_of(StepDigest::Kind kind) {
  switch (kind) {
    case StepDigest::Kind::forward: return "forward";
    case StepDigest::Kind::backward: return "backward";
    case StepDigest::Kind::gradient: return "gradient";
    case StepDigest::Kind::weights: return "weights";
  }
  return "?";
}

}  // namespace fsdp
