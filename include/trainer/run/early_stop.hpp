// SPDX-License-Identifier: Apache-2.0
/// @file
/// Early stopping by held-out losses (--patience).
#pragma once

#include <cstdint>
#include <optional>

#include <tessera/fsdp/checkpoint/folder.hpp>

namespace fsdp::train {

/// Tracks the lowest held-out loss. Its state is part of a checkpoint, so that a resumed run stops at the same step.
class EarlyStop {
 public:
  /// `patience`: number of consecutive losses without improvement after which the run stops; 0: never, and nothing is
  /// tracked.
  explicit EarlyStop(std::int64_t patience) : patience_(patience) {}

  /// The lowest loss so far, as a checkpoint stores it; empty before the first loss, and always if patience is 0.
  const std::optional<checkpoint::BestLoss>& best() const { return best_; }
  void restore(const std::optional<checkpoint::BestLoss>& best) {
    if (patience_ > 0) best_ = best;
  }

  /// Records the loss after a step. Returns whether it is the lowest so far; false if patience is 0. A second loss of
  /// the best step, which a resumed run measures again, is ignored and returns false.
  bool improves(double loss, std::int64_t step) {
    if (patience_ == 0 || (best_ && best_->step == step)) return false;
    if (best_ && loss >= best_->loss) {
      ++best_->worse;
      return false;
    }
    best_ = {.loss = loss, .step = step};
    return true;
  }
  /// Returns whether the run should stop now.
  bool due() const { return patience_ > 0 && best_ && best_->worse >= patience_; }

 private:
  std::int64_t patience_;
  std::optional<checkpoint::BestLoss> best_;
};

}  // namespace fsdp::train
