// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names and lists of the digests of a training step. step_digests.hpp computes the digests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>

namespace fsdp {

class ModuleState;

/// One digest of a step.
struct StepDigest {
  /// The digested tensor.
  enum class Kind : std::uint8_t {
    forward,   ///< the residual stream [T, H] that a unit's forward wrote
    backward,  ///< the gradient of the residual stream [T, H] that a unit's backward wrote
    gradient,  ///< the gradient of a unit's parameters, summed over the step, before clipping
    weights,   ///< the main weights of a unit's parameters after the step
  };
  Kind kind = Kind::forward;
  int piece = -1;    ///< index of the piece of the step; -1 for gradients and weights
  std::string name;  ///< name of the unit
  std::uint64_t bits = 0;

  friend bool operator==(const StepDigest&, const StepDigest&) = default;
};

/// Whether a digest covers a computation's output in one piece of a step.
constexpr bool is_stream(StepDigest::Kind kind) {
  return kind == StepDigest::Kind::forward || kind == StepDigest::Kind::backward;
}

/// Returns "forward", "backward", "gradient" or "weights".
constexpr std::string_view name_of(StepDigest::Kind kind) {
  constexpr std::string_view names[] = {"forward", "backward", "gradient", "weights"};
  return name_from(names, kind);
}

/// Digests of all ranks, [ranks, digests].
class DigestTable {
 public:
  /// `all` contains the digests of all ranks, one rank after the other.
  DigestTable(std::vector<std::uint64_t> all, int ranks);

  /// Returns the digests of one rank.
  std::span<const std::uint64_t> of(int rank) const;

 private:
  std::vector<std::uint64_t> all_;
  std::size_t digests_;
};

/// The shape of a step that StepDigests digested.
struct DigestedStep {
  std::vector<std::string> units;  ///< names of the units
  int first_backward = 0;
  int groups = 1;                  ///< number of groups of ranks that share sequences
  int group_size = 1;              ///< number of ranks of each group
  int micro_batches = 1;           ///< number of micro-batches of each group
  int pieces = 0;                  ///< number of pieces of a step; 0 for one piece per micro-batch of each group
  std::vector<bool> changes = {};  ///< whether each unit's weights are trained
};

/// The first unit that uses each parameter. Steps are digested by unit, since units depend only on the model, while
/// groups also depend on flags and thresholds.
class FirstUnits {
 public:
  explicit FirstUnits(const ModuleState& module);  ///< finds them in the units of a module
  ~FirstUnits();
  int of(const std::string& parameter) const;  ///< the number of the unit

 private:
  std::map<std::string, int> units_;
};

/// Returns the shape of a module's step.
DigestedStep digested_step(const ModuleState& module, const FirstUnits& first_units);

/// Returns the digests of a step in the order of computation: piece by piece, then the parameters.
std::vector<StepDigest> listed(const DigestedStep& step, const DigestTable& all);

}  // namespace fsdp
