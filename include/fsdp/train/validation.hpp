// SPDX-License-Identifier: Apache-2.0
/// @file
/// Mean loss over given samples, divided over ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <comm/collectives.hpp>
#include <comm/signals.hpp>
#include <fsdp/core/function_ref.hpp>
#include <fsdp/module/count_exchange.hpp>
#include <fsdp/module/executor.hpp>
#include <fsdp/train/batches.hpp>

namespace fsdp::train {

struct MeanLoss {
  double loss = 0;          ///< per target: of tokens nats
  std::int64_t tokens = 0;  ///< targets
  int stop = 0;             ///< the signal that ended it before all samples were seen, on all ranks; 0: none
};

/// Every rank evaluates equally often, so that their collectives agree: a rank without samples computes on ignored
/// targets. Between batches, `asked` says what signals asked of this rank, of which one to stop ends it on all, and
/// `seen` is told how many samples of all were seen.
template <class Model, data::Source Source>
MeanLoss mean_loss(Executor<Model>& executor, typename Model::Stack::Comm& communicator,
                   CountExchange<typename Model::Stack::Comm>& exchange, Batches<Source>& batches,
                   std::int64_t sequences, std::span<const std::int64_t> samples, FunctionRef<comm::Asked()> asked,
                   FunctionRef<void(std::int64_t seen, std::int64_t all)> seen) {
  double sum = 0;
  std::int64_t tokens = 0;
  const auto count = static_cast<std::int64_t>(samples.size());
  for (std::int64_t begin = 0; begin < count; begin += sequences * communicator.size()) {
    const std::int64_t from = std::min(count, begin + sequences * communicator.rank());
    const std::int64_t to = std::min(count, from + sequences);
    const typename Source::Batch* batch = nullptr;
    exchange.start(
        [&] {
          batch = &batches.fill(samples.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)));
          return batch->counts();
        },
        asked());
    tokens += exchange.finish().valid_targets;
    if (const int stop = exchange.asked().stop; stop != 0) return {.stop = stop};
    sum += executor.evaluate(*batch);
    seen(std::min(count, begin + sequences * communicator.size()), count);
  }
  const double total = comm::sum_over_ranks(communicator, sum, {"validation loss"});
  return {.loss = tokens > 0 ? total / static_cast<double>(tokens) : 0.0, .tokens = tokens};
}

}  // namespace fsdp::train
