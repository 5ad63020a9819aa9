// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trains a small Llama of odd sizes over Threads and returns the results, which the suite of optimizers compares.
/// Contains no tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/optim/adamw.hpp>
#include <tessera/fsdp/testing/strategy_loop.hpp>
#include <tessera/fsdp/training/training.hpp>

namespace fsdp::testing {

template <class Strategy>
using StrategyModel = Llama<Stack<Strategy, comm::Threads<>, Fp32, tiling::RunTimeTiling>>;

namespace detail {

inline constexpr int strategy_steps = 4;

inline LlamaConfig strategy_config(bool tied) {
  return {.vocab_size = 37,
          .hidden_size = 19,
          .intermediate_size = 29,
          .layers = 3,
          .heads = 3,
          .kv_heads = 1,
          .head_dim = 6,
          .tied = tied};
}

/// Tokens of one rank's micro-batch in one step; they differ between ranks.
class StrategyBatch {
 public:
  static constexpr std::int64_t sequences = 2, length = 7;

  StrategyBatch(int rank, int micro_batch) {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = static_cast<std::int32_t>(
          (5 * i + 11 * static_cast<std::size_t>(rank) + 3 * static_cast<std::size_t>(micro_batch)) % 37);
      targets_[i] = (tokens_[i] * 7 + 1) % 37;
    }
    if (rank == 1) targets_.front() = -1;  // ranks have different numbers of targets
  }
  TokenBatch view() const {
    return {{tokens_.data(), {sequences * length}}, {targets_.data(), {sequences * length}}, sequences};
  }

 private:
  std::vector<std::int32_t> tokens_ = std::vector<std::int32_t>(sequences * length);
  std::vector<std::int32_t> targets_ = std::vector<std::int32_t>(sequences * length);
};

inline train::StepSize strategy_size(const StrategyCase& how) {
  return {.sequences = StrategyBatch::sequences,
          .sequence_length = StrategyBatch::length,
          .micro_batches = how.micro_batches,
          .threads = 1};
}

template <class Training>
void collect(Training& training, std::mutex& mutex, StrategyRun& run) {
  const std::scoped_lock lock(mutex);
  auto& module = training.module();
  for (std::size_t index = 0; index < module.shards().size(); ++index) {
    const auto& piece = module.shards()[index];
    if (!piece.owned) continue;
    const auto place = [&](std::vector<float>& whole, Tensor<const float> part) {
      whole.resize(static_cast<std::size_t>(piece.parameter->shape.numel()));
      std::copy_n(part.data(), part.numel(), whole.begin() + piece.begin);
    };
    place(run.weights[piece.parameter->name],
          piece.has_main() ? Tensor<const float>(piece.main) : Tensor<const float>(piece.model));
    const auto names = training.optimizer().state_names(piece);
    for (std::size_t state = 0; state < names.size(); ++state)
      place(run.states[message(piece.parameter->name, ".", names[state])], training.optimizer().states(index)[state]);
  }
}

}  // namespace detail

/// Hooks and options of a run; these do nothing else but train.
struct TrainOnly {
  int steps = detail::strategy_steps;  ///< in total, including those before a checkpoint that it resumes from
  double lr = 1e-2;
  bool as_ranks = false;  ///< one rank takes, as its micro-batches, what as many ranks would take

  template <class Training>
  void begin(Training&) const {}  ///< after weights were initialised
  template <class Training>
  void end(Training&) const {}  ///< after the last step
};

/// Trains. Rethrows the error of the first rank that failed.
template <class Strategy, class Optimizer = optim::AdamW, class Around = TrainOnly>
StrategyRun train_with(const Strategy& strategy, const StrategyCase& how, const Optimizer& optimizer = {},
                       const Around& around = {}) {
  using Model = StrategyModel<Strategy>;
  using Comm = comm::Threads<>;
  StrategyRun run;
  std::mutex mutex;
  Comm::run(how.ranks, {.record = true}, [&](Comm& communicator) {
    train::Training<Model, Optimizer> training(communicator, Model(detail::strategy_config(how.tied), how.units),
                                               detail::strategy_size(how), strategy, {}, {.optimizer = optimizer});
    training.initialize(3);
    around.begin(training);
    auto& module = training.module();
    std::vector<detail::StrategyBatch> held;
    std::vector<TokenBatch> batches;
    for (int i = 0; i < how.micro_batches; ++i)
      around.as_ranks ? held.emplace_back(i, 0) : held.emplace_back(communicator.rank(), i);
    for (const detail::StrategyBatch& batch : held) batches.push_back(batch.view());
    std::vector<double> losses;
    while (training.optimizer().steps() < around.steps) {
      for (auto* axis : module.communicators()) axis->monitor().records.clear();
      losses.push_back(training.step(batches, {.lr = around.lr}));
    }
    if (communicator.rank() == 0) detail::count_step(module, run);
    around.end(training);
    training.executor().evaluate(batches.front());
    module.synchronize();
    detail::collect(training, mutex, run);
    if (communicator.rank() != 0) return;
    run.losses = losses;
    run.planned = training.plan().bytes;
    run.taken = module.peak_bytes();
    detail::count_schedule(module, run);
  });
  return run;
}

}  // namespace fsdp::testing
