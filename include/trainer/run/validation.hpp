// SPDX-License-Identifier: Apache-2.0
/// @file
/// Mean loss over given samples. They are distributed over P groups of ranks, each of which shares its sequences: batch
/// n is batch n / P of group n % P. If sequences are whole, each rank is a group.
#pragma once

#include <cstdint>
#include <span>

#include <tessera/comm/ranks.hpp>
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

}  // namespace fsdp::train
