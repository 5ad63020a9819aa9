// SPDX-License-Identifier: Apache-2.0
/// @file
/// Mean loss over given windows, divided over ranks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include <comm/collectives.hpp>
#include <fsdp/executor.hpp>
#include <fsdp/train/batches.hpp>

namespace fsdp::train {

struct MeanLoss {
  double loss = 0;  ///< nats per token
  std::int64_t tokens = 0;
};

/// Every rank evaluates equally often, so that their collectives agree: a rank without windows computes on ignored
/// targets.
template <class Model>
MeanLoss mean_loss(Executor<Model>& executor, typename Model::Stack::Comm& communicator, Batches& batches,
                   std::int64_t sequences, std::span<const std::int64_t> windows) {
  double sum = 0;
  std::int64_t tokens = 0;
  const auto count = static_cast<std::int64_t>(windows.size());
  for (std::int64_t begin = 0; begin < count; begin += sequences * communicator.size()) {
    const std::int64_t from = std::min(count, begin + sequences * communicator.rank());
    const std::int64_t to = std::min(count, from + sequences);
    const MicroBatch& batch =
        batches.fill(windows.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)));
    sum += executor.evaluate(batch);
    tokens += (to - from) * (batch.tokens.numel() / batch.sequences);
  }
  std::array<double, 2> totals = {sum, static_cast<double>(tokens)};
  comm::reduce(communicator, std::span<double>(totals), comm::Reduction::sum, {"validation loss"});
  return {.loss = totals[1] > 0 ? totals[0] / totals[1] : 0.0, .tokens = static_cast<std::int64_t>(totals[1])};
}

}  // namespace fsdp::train
