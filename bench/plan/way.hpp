// SPDX-License-Identifier: Apache-2.0
/// @file
/// A way to train, run over ranks that are threads, whose collectives take what a cluster's links would.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/nn/instances.hpp>
#include <tessera/fsdp/optim/adamw.hpp>
#include <tessera/fsdp/plan/estimate.hpp>
#include <tessera/fsdp/training/training.hpp>

#include "../../src/program/bench/rounds.hpp"

namespace fsdp::bench {

template <class Strategy>
using Trained = Llama<Stack<Strategy, comm::Threads<>, Fp32>>;

/// One way to train.
template <class Strategy>
struct Way {
  Strategy strategy = {};
  int ranks = 2;
  int micro_batches = 1;
  bool recompute = false;

  std::string text() const {
    return message(policy_text(strategy), " on ", ranks, ranks == 1 ? " rank" : " ranks", ", ", micro_batches,
                   micro_batches == 1 ? " micro-batch" : " micro-batches", recompute ? ", recomputed" : "");
  }
  Trained<Strategy> model() const {
    const LlamaConfig config{.vocab_size = 1024,
                             .hidden_size = 256,
                             .intermediate_size = 768,
                             .layers = 4,
                             .heads = 8,
                             .kv_heads = 4,
                             .head_dim = 32};
    return Trained<Strategy>(config, {.recompute = recompute});
  }
  /// Ranks have as much to compute with any number of micro-batches.
  train::StepSize size() const {
    return {.sequences = 8 / micro_batches, .sequence_length = 128, .micro_batches = micro_batches, .threads = 1};
  }
};

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Options of ranks whose collectives each take what the cluster's links would, before they take their own time.
inline comm::Options over_links(const plan::Cluster& cluster) {
  return {.before = [cluster](int, const comm::Record& call) {
    const double seconds = plan::collective_time(cluster, call.op, call.bytes, {.ranks = cluster.ranks}).seconds();
    const Clock::time_point begin = Clock::now();
    while (seconds_since(begin) < seconds) std::this_thread::yield();  // a core that slept computes slower afterwards
  }};
}

/// What a rank's steps took: medians over steps, in seconds.
struct Measured {
  double step = 0;                                                ///< of the slowest rank
  double optimizer = 0;                                           ///< of rank 0: from the end of the pass
  std::map<std::pair<sharding::Action, int>, double> tasks = {};  ///< of rank 0: by action and unit
};

/// Times tasks, as an Observer.
class TaskTimes {
 public:
  Observer observer() {
    return {.before = [](void* self, const sharding::Task&) { static_cast<TaskTimes*>(self)->begin_ = Clock::now(); },
            .after =
                [](void* self, const sharding::Task& task) {
                  auto& own = *static_cast<TaskTimes*>(self);
                  own.seconds_[{task.action, task.index}].push_back(seconds_since(own.begin_));
                },
            .state = this};
  }
  void clear() { seconds_.clear(); }
  std::map<std::pair<sharding::Action, int>, double> medians() const {
    std::map<std::pair<sharding::Action, int>, double> list;
    for (const auto& [task, all] : seconds_) list[task] = median(all);
    return list;
  }

 private:
  Clock::time_point begin_;
  std::map<std::pair<sharding::Action, int>, std::vector<double>> seconds_;
};

/// Trains for `steps` steps after one that is not counted, over ranks with these options.
template <class Strategy>
Measured measure(const Way<Strategy>& way, const comm::Options& options, int steps) {
  Measured result;
  comm::Threads<>::run(way.ranks, options, [&](comm::Threads<>& communicator) {
    TaskTimes tasks;
    const train::StepSize size = way.size();
    train::Training<Trained<Strategy>, optim::AdamW> training(communicator, way.model(), size, way.strategy, {},
                                                              {.observer = tasks.observer()});
    training.initialize(1);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(size.sequences * size.sequence_length) + 1);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(7 * i % 1000);
    const std::int64_t rows = std::ssize(tokens) - 1;
    const std::vector<TokenBatch> batches(
        static_cast<std::size_t>(size.micro_batches),
        {.tokens = {tokens.data(), {rows}}, .targets = {tokens.data() + 1, {rows}}, .sequences = size.sequences});
    std::vector<double> whole, updates;
    for (int i = 0; i <= steps; ++i) {
      comm::barrier(communicator);
      if (i <= 1) tasks.clear();
      const Clock::time_point begin = Clock::now();
      Clock::time_point passed;
      training.queue(batches, 1.0f / static_cast<float>(rows), {.lr = 1e-4}, false, [&] { passed = Clock::now(); });
      training.optimizer().control().decision();
      double seconds = seconds_since(begin);
      updates.push_back(seconds_since(passed));
      comm::reduce(communicator, std::span(&seconds, 1), comm::Reduction::max);
      whole.push_back(seconds);
    }
    whole.erase(whole.begin());
    updates.erase(updates.begin());
    if (communicator.rank() == 0) result = {median(whole), median(updates), tasks.medians()};
    return 0;
  });
  return result;
}

/// Returns the recorded step of a way, and its plan.
template <class Strategy>
std::pair<plan::Plan, plan::StepRecord> recorded(const Way<Strategy>& way) {
  plan::StepRecord record;
  plan::Request request = train::plan_request(way.size(), way.ranks, 0);
  request.record = &record;
  plan::Plan plan = plan::dry_run(way.model(), way.strategy, {}, request, optim::AdamW{});
  return {std::move(plan), std::move(record)};
}

}  // namespace fsdp::bench
