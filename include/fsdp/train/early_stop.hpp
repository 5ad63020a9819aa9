// SPDX-License-Identifier: Apache-2.0
/// @file
/// When a run ends before its last step: by its held-out losses (--patience).
#pragma once

#include <cstdint>
#include <optional>

#include <fsdp/checkpoint/folder.hpp>

namespace fsdp::train {

/// Compares held-out losses with the lowest so far. Part of a checkpoint, so that a resumed run ends at the same step.
class EarlyStop {
 public:
  /// `patience`: losses in a row that may be no lower than the lowest; 0: nothing is compared.
  explicit EarlyStop(std::int64_t patience) : patience_(patience) {}

  /// What a checkpoint holds.
  const std::optional<checkpoint::BestLoss>& best() const { return best_; }
  void restore(const std::optional<checkpoint::BestLoss>& best) {
    if (patience_ > 0) best_ = best;
  }

  /// Whether the loss after a step is lower than all before. A resumed run measures its step's again, which counts
  /// once.
  bool improves(double loss, std::int64_t step);
  /// Whether the run ends.
  bool due() const { return patience_ > 0 && best_ && best_->worse >= patience_; }

 private:
  std::int64_t patience_;
  std::optional<checkpoint::BestLoss> best_;
};

}  // namespace fsdp::train
