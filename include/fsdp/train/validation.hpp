// SPDX-License-Identifier: Apache-2.0
/// @file
/// Mean loss over given samples, divided over ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <comm/collectives.hpp>
#include <fsdp/module/count_exchange.hpp>
#include <fsdp/module/executor.hpp>
#include <fsdp/train/batches.hpp>

namespace fsdp::train {

struct MeanLoss {
  double loss = 0;          ///< per target: of tokens nats
  std::int64_t tokens = 0;  ///< targets
};

/// Every rank evaluates equally often, so that their collectives agree: a rank without samples computes on ignored
/// targets.
template <class Model, data::Source Source>
MeanLoss mean_loss(Executor<Model>& executor, typename Model::Stack::Comm& communicator,
                   CountExchange<typename Model::Stack::Comm>& exchange, Batches<Source>& batches,
                   std::int64_t sequences, std::span<const std::int64_t> samples) {
  double sum = 0;
  std::int64_t tokens = 0;
  const auto count = static_cast<std::int64_t>(samples.size());
  for (std::int64_t begin = 0; begin < count; begin += sequences * communicator.size()) {
    const std::int64_t from = std::min(count, begin + sequences * communicator.rank());
    const std::int64_t to = std::min(count, from + sequences);
    const typename Source::Batch* batch = nullptr;
    exchange.start([&] {
      batch = &batches.fill(samples.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)));
      return batch->counts();
    });
    tokens += exchange.finish().valid_targets;
    sum += executor.evaluate(*batch);
  }
  const double total = comm::sum_over_ranks(communicator, sum, {"validation loss"});
  return {.loss = tokens > 0 ? total / static_cast<double>(tokens) : 0.0, .tokens = tokens};
}

}  // namespace fsdp::train
