// SPDX-License-Identifier: Apache-2.0
/// @file
/// A small Llama of odd sizes, which the suite of optimizers trains over Threads (tessera/fsdp/testing/model_runs.hpp).
/// Contains no tests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/testing/model_runs.hpp>
#include <tessera/fsdp/testing/strategy_loop.hpp>

namespace fsdp::testing {

/// One rank's micro-batches of tokens; they differ between ranks.
struct StrategyBatches {
  static constexpr std::int64_t sequences = 2, length = 7, tokens = sequences * length;

  /// `as_ranks`: one rank uses, as its micro-batches, the batches of that many ranks.
  StrategyBatches(int rank, std::size_t micro_batches, bool as_ranks) : memory(2 * micro_batches) {
    for (std::size_t i = 0; i < micro_batches; ++i) {
      auto &inputs = memory[2 * i], &targets = memory[2 * i + 1];
      const std::size_t from = as_ranks ? i : static_cast<std::size_t>(rank);
      for (std::size_t at = 0; at < tokens; ++at) {
        inputs[at] = static_cast<std::int32_t>((5 * at + 11 * from + 3 * (as_ranks ? 0 : i)) % 37);
        targets[at] = (inputs[at] * 7 + 1) % 37;
      }
      if (from == 1) targets[0] = -1;  // ranks then have different numbers of targets
      batches.push_back({{inputs.data(), {tokens}}, {targets.data(), {tokens}}, sequences});
    }
  }
  std::vector<std::array<std::int32_t, tokens>> memory;
  std::vector<TokenBatch> batches;
};

/// A task for train_model.
template <class Strategy>
struct StrategyTask {
  using Model = Llama<ModelStack<Strategy>>;
  Strategy sharding;
  StrategyCase how;
  bool as_ranks = false;
  UnitOptions units = how.units;
  tiling::RunTimeTiling tiling = {};
  LlamaConfig config = {.vocab_size = 37,
                        .hidden_size = 19,
                        .intermediate_size = 29,
                        .layers = 3,
                        .heads = 3,
                        .kv_heads = 1,
                        .head_dim = 6,
                        .tied = how.tied};
  train::StepSize size = {.sequences = StrategyBatches::sequences,
                          .sequence_length = StrategyBatches::length,
                          .micro_batches = how.micro_batches,
                          .threads = 1};

  StrategyBatches data(int rank) const { return {rank, static_cast<std::size_t>(how.micro_batches), as_ranks}; }
};

}  // namespace fsdp::testing
