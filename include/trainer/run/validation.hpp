// SPDX-License-Identifier: Apache-2.0
/// @file
/// Mean loss over given samples, which are distributed over P groups of ranks, each of which shares its sequences:
/// batch n is batch n / P of group n % P. Where sequences are whole, each rank is a group.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/stopped.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/execution/count_exchange.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/trainer/data/batches.hpp>

namespace fsdp::train {

/// The result of mean_loss, the same on all ranks.
struct MeanLoss {
  double loss = 0;          ///< mean per target; nats for tokens
  std::int64_t tokens = 0;  ///< number of targets
  int stop = 0;             ///< the signal that ended the evaluation early; 0: none
};

namespace detail {

/// Returns the sum of the first `batches` batches' losses, in their order, which does not depend on the ranks. `losses`
/// [groups * sharing, rounds]: of each rank's rows of its group's batches, where `sharing` ranks are a group.
inline double sum_of_batches(std::span<const double> losses, std::int64_t groups, std::int64_t batches,
                             std::int64_t sharing = 1) {
  const std::int64_t rounds = std::ssize(losses) / (groups * sharing);
  double sum = 0;
  for (std::int64_t n = 0; n < batches; ++n)
    for (std::int64_t member = 0; member < sharing; ++member)
      sum += losses[static_cast<std::size_t>((n % groups * sharing + member) * rounds + n / groups)];
  return sum;
}

}  // namespace detail

/// Evaluates the samples and returns their mean loss, which depends on `sequences` and not on the ranks. Collective.
/// All ranks evaluate the same number of batches, since each contains collectives; a rank that has run out of samples
/// computes on ignored targets. Before each batch, `asked` returns the signals that this rank received; if any rank has
/// a stop signal, all ranks return early, with `stop` set and no loss. After each batch, `seen` is called with the
/// samples seen so far and their total. `executor`: an Executor. `ranks_per_sequence`: those that share each sequence.
template <class ExecutorT, class Comm, data::Source Source>
MeanLoss mean_loss(ExecutorT& executor, Comm& communicator, CountExchange<Comm>& exchange, Batches<Source>& batches,
                   std::int64_t sequences, std::span<const std::int64_t> samples,
                   FunctionRef<comm::SignalRequests()> asked,
                   FunctionRef<void(std::int64_t seen, std::int64_t all)> seen, int ranks_per_sequence = 1) {
  std::vector<double> losses;  // of this rank's batches
  std::int64_t tokens = 0;
  const auto count = static_cast<std::int64_t>(samples.size());
  const int ranks = communicator.size();
  const SequenceGroup group = sequence_group(communicator.rank(), ranks, ranks_per_sequence);
  for (std::int64_t begin = 0; begin < count; begin += sequences * group.count) {
    const std::int64_t from = std::min(count, begin + sequences * group.index);
    const std::int64_t to = std::min(count, from + sequences);
    const typename Source::Batch* batch = nullptr;
    exchange.start(
        [&] {
          batch = &batches.fill(samples.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)));
          return nn::counts_of_part(*batch, group.member, group.size);
        },
        asked());
    tokens += exchange.finish().valid_targets;
    if (const int stop = exchange.asked().stop; stop != 0) return {.stop = stop};
    losses.push_back(executor.evaluate(*batch));
    seen(std::min(count, begin + sequences * group.count), count);
  }
  if (tokens == 0) return {};
  std::vector<double> all(losses.size() * static_cast<std::size_t>(ranks));  // [ranks, rounds]
  comm::gather_bytes(communicator, std::as_bytes(std::span(losses)), std::as_writable_bytes(std::span(all)),
                     {"validation loss"});
  const double sum = detail::sum_of_batches(all, group.count, ceil_divide(count, sequences), group.size);
  return {.loss = sum / static_cast<double>(tokens), .tokens = tokens};
}

}  // namespace fsdp::train
