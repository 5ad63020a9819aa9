// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera_bench plan [ROUNDS]`: planned step times compared with measured steps over links of known latency and
/// bandwidth.
///
/// Each round first calibrates without links: each unit's forward and backward, also with recomputation, the optimizer,
/// and the collectives alone. From these times and the links, the step of every configuration is planned, and then run.
/// Prints one line per configuration, with medians over the rounds, and the largest deviation.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
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
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/plan/estimate.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/training/training.hpp>

#include "options.hpp"

namespace fsdp::bench {
namespace {

using calibrate::median;

template <class Strategy>
using Trained = Llama<Stack<Strategy, comm::Threads<>, Fp32>>;

/// One training configuration.
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
  /// Returns step sizes with the same computation for any number of micro-batches.
  train::StepSize size() const {
    return {.sequences = 8 / micro_batches, .sequence_length = 128, .micro_batches = micro_batches, .threads = 1};
  }
};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Options that delay each collective by its time on the links of the cluster, before it really runs.
comm::Options over_links(const plan::Cluster& cluster) {
  return {.before = [cluster](int, const comm::Record& call) {
    const double seconds = plan::collective_time(cluster, call.op, call.bytes, {.ranks = cluster.ranks}).seconds();
    const Clock::time_point begin = Clock::now();
    // Does not sleep, because a core computes more slowly after sleeping.
    while (seconds_since(begin) < seconds) std::this_thread::yield();
  }};
}

/// Measured times of a rank's steps: medians over steps, in seconds.
struct Measured {
  double step = 0;                                                ///< whole step on the slowest rank
  double optimizer = 0;                                           ///< on rank 0, from the end of the pass
  std::map<std::pair<sharding::Action, int>, double> tasks = {};  ///< on rank 0, by action and unit
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

/// Trains for `steps` steps after one warm-up step, over ranks with these options.
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

/// Returns the plan of a configuration, and its recorded step.
template <class Strategy>
std::pair<plan::Plan, plan::StepRecord> recorded(const Way<Strategy>& way) {
  plan::StepRecord record;
  plan::Request request = train::plan_request(way.size(), way.ranks, 0);
  request.record = &record;
  plan::Plan plan = plan::dry_run(way.model(), way.strategy, {}, request, optim::AdamW{});
  return {std::move(plan), std::move(record)};
}

constexpr int steps_of_a_round = 3;

/// A node whose ranks are connected like machines with slow links.
plan::Cluster links(int ranks) {
  plan::Cluster cluster = plan::known_cluster("xeon", 2);
  cluster.ranks = cluster.ranks_per_node = ranks;
  cluster.collective_latency = 1e-4;
  cluster.node_latency = 4e-4;
  cluster.node_bandwidth = 2e8;
  return cluster;
}

/// Times of computations, and rates of the optimizer and collectives, without links.
struct Calibrated {
  Measured plain, recomputed;
  double optimizer_bandwidth = 0;   ///< bytes per second that the optimizer accesses
  double collective_bandwidth = 0;  ///< bytes per second of collectives, including the wait for other ranks
};

Calibrated calibrate() {
  Way<RunTimeAny> way{.strategy = {FullyShard<>{}}};
  const plan::StepRecord record = recorded(way).second;
  Calibrated found{.plain = measure(way, {}, steps_of_a_round), .recomputed = {}};
  way.recompute = true;
  found.recomputed = measure(way, {}, steps_of_a_round);
  found.optimizer_bandwidth = static_cast<double>(record.optimizer.counters.elementwise_bytes) / found.plain.optimizer;
  double rest = found.plain.step - found.plain.optimizer, bytes = 0;
  for (const plan::RecordedTask& each : record.tasks) {
    if (sharding::computes(each.task.action)) rest -= found.plain.tasks.at({each.task.action, each.task.index});
    for (const plan::RecordedCollective& call : each.work.collectives) bytes += static_cast<double>(call.bytes) / 2;
  }
  found.collective_bandwidth = bytes / std::max(rest, 1e-6);
  return found;
}

/// Returns the planned seconds of a step over the links.
template <class Strategy>
double planned(const Way<Strategy>& way, const Calibrated& calibrated) {
  auto [plan, record] = recorded(way);
  const Measured& measured = way.recompute ? calibrated.recomputed : calibrated.plain;
  for (plan::RecordedTask& each : record.tasks)
    if (sharding::computes(each.task.action))
      each.work = {.stated_seconds = measured.tasks.at({each.task.action, each.task.index}) / way.micro_batches};
  plan::Cluster cluster = links(way.ranks);
  cluster.memory_bandwidth = calibrated.optimizer_bandwidth;
  cluster.node_bandwidth = 1 / (1 / cluster.node_bandwidth + 1 / calibrated.collective_bandwidth);
  return plan::estimate_of(plan, record, {}, cluster).seconds;
}

/// A configuration, with its results in each round.
struct Case {
  std::string text;
  std::function<double(const Calibrated&)> plan;
  std::function<double()> step;
  std::vector<double> planned = {}, steps = {}, ratios = {};
};

template <class Strategy>
void add(std::vector<Case>& cases, const Way<Strategy>& way) {
  cases.push_back({.text = way.text(),
                   .plan = [way](const Calibrated& calibrated) { return planned(way, calibrated); },
                   .step = [way] { return measure(way, over_links(links(way.ranks)), steps_of_a_round).step; }});
}

template <class Strategy>
void add_all(std::vector<Case>& cases, const Strategy& strategy) {
  for (const int micro_batches : {1, 2})
    for (const bool recompute : {false, true})
      add(cases, Way<Strategy>{.strategy = strategy, .micro_batches = micro_batches, .recompute = recompute});
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const RunTimeAny& strategy :
       {RunTimeAny{FullyShard<>{}}, {FullyShard<ReshardAfterForward::no>{}}, {Zero1{}}, {Zero2{}}, {Replicated{}}})
    add_all(cases, strategy);
  for (const bool recompute : {false, true})
    add(cases, Way<RunTimeAny>{.strategy = {FullyShard<>{}}, .ranks = 1, .recompute = recompute});
  return cases;
}

}  // namespace

void measure_plan(std::int64_t rounds) {
  std::vector<Case> cases = all_cases();
  for (std::int64_t round = 0; round < rounds; ++round) {
    const Calibrated calibrated = calibrate();
    for (Case& each : cases) {
      each.planned.push_back(each.plan(calibrated));
      each.steps.push_back(each.step());
      each.ratios.push_back(each.steps.back() / each.planned.back());
    }
  }
  std::vector<double> deviations;
  for (const Case& each : cases) {
    deviations.push_back(std::abs(median(each.ratios) - 1));
    std::printf("%-60s planned %7.1f ms, step %7.1f ms, %+5.1f %%\n", each.text.c_str(), median(each.planned) * 1e3,
                median(each.steps) * 1e3, (median(each.ratios) - 1) * 100);
  }
  const auto within = std::ranges::count_if(deviations, [](double each) { return each <= 0.05; });
  std::printf("%zu ways: %td within 5 %%; at most %.1f %%, half of them at most %.1f %%\n", cases.size(), within,
              std::ranges::max(deviations) * 100, median(deviations) * 100);
}

}  // namespace fsdp::bench
