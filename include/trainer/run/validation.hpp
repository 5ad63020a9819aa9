// SPDX-License-Identifier: Apache-2.0
/// @file
/// The mean loss over given samples, and early stopping by held-out losses (--patience).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/trainer/run/engine.hpp>

namespace fsdp::train {

/// The result of mean_loss, the same on all ranks.
struct MeanLoss {
  double loss = 0;          ///< mean per target; nats for tokens
  std::int64_t tokens = 0;  ///< number of targets
  int stop = 0;             ///< the signal that ended the evaluation early; 0: none
};

namespace detail {

/// Returns the sum of the losses of the first `batches` batches, in the order of the batches, which does not depend on
/// the ranks. `losses` [groups * sharing, rounds]: losses of each rank's rows of its group's batches; `sharing` ranks
/// form a group.
double sum_of_batches(std::span<const double> losses, std::int64_t groups, std::int64_t batches,
                      std::int64_t sharing = 1);

}  // namespace detail

/// Evaluates the samples and returns their mean loss, which depends on `sequences` and not on the ranks. Collective.
/// All ranks evaluate the same number of batches, since each contains collectives; a rank that has run out of samples
/// evaluates a batch whose targets are all ignored. `evaluate`: see Engine::evaluate; if it returns a stop signal, all
/// ranks return early, with `stop` set and no loss. After each batch, `seen` is called with the number of samples seen
/// so far and their total. `ranks_per_sequence`: number of ranks that share each sequence.
MeanLoss mean_loss(const comm::Ranks& ranks, FunctionRef<HeldOutBatch(std::span<const std::int64_t>)> evaluate,
                   std::int64_t sequences, std::span<const std::int64_t> samples,
                   FunctionRef<void(std::int64_t seen, std::int64_t all)> seen, int ranks_per_sequence = 1);

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
