// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names and lists the digests of a training step. They are made in step_digests.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

/// The same digests of all ranks, [ranks, digests].
class DigestTable {
 public:
  /// Takes those of all ranks, one rank after the other.
  DigestTable(std::vector<std::uint64_t> all, int ranks);

  /// Those of one rank.
  std::span<const std::uint64_t> of(int rank) const;

 private:
  std::vector<std::uint64_t> all_;
  std::size_t digests_;
};

/// What StepDigests knows of the step that it digested.
struct DigestedStep {
  std::vector<std::string> units;  ///< names
  int first_backward = 0;
  int groups = 1;                  ///< of ranks that share sequences
  int group_size = 1;              ///< ranks of each
  int micro_batches = 1;           ///< of each group
  int pieces = 0;                  ///< that a step is cut into; 0: one for each micro-batch of each group
  std::vector<bool> changes = {};  ///< whether a unit's weights are trained
};

/// Returns the digests of a step in the order of computation: piece after piece, then the parameters.
std::vector<StepDigest> listed(const DigestedStep& step, const DigestTable& all);

/// Adds to the first units that use parameters, by name, a use; units come in order.
void add_use(std::map<std::string, int>& first_units, const std::string& parameter, int unit);

}  // namespace fsdp
