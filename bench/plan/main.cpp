// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera_bench_plan [ROUNDS]`: whether steps take what a plan says, over links of known latency and bandwidth.
///
/// A round calibrates, without links: what each unit's forward and backward take, also recomputed, the optimizer, and
/// the collectives on their own. From these and the links the step of every way is planned, and then made. Prints a
/// line for each way, with medians over the rounds (5), and the largest deviation.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

#include "way.hpp"

namespace fsdp::bench {
namespace {

constexpr int steps_of_a_round = 3;

/// A node whose ranks are as far from each other as machines with slow links.
plan::Cluster links(int ranks) {
  plan::Cluster cluster = plan::known_cluster("xeon", 2);
  cluster.ranks = cluster.ranks_per_node = ranks;
  cluster.collective_latency = 1e-4;
  cluster.node_latency = 4e-4;
  cluster.node_bandwidth = 2e8;
  return cluster;
}

/// What computations and collectives take without links.
struct Calibrated {
  Measured plain, recomputed;
  double optimizer_bandwidth = 0;   ///< bytes a second that the optimizer accesses
  double collective_bandwidth = 0;  ///< bytes a second of collectives, with what ranks wait for each other
};

Calibrated calibrate() {
  Way<RunTimeSharded> way{.strategy = {FullyShard<>{}}};
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

/// Returns the seconds of a step over the links.
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

/// A way, and what came of it in each round.
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
  for (const RunTimeSharded& strategy :
       {RunTimeSharded{FullyShard<>{}}, {FullyShard<ReshardAfterForward::no>{}}, {Zero1{}}, {Zero2{}}})
    add_all(cases, strategy);
  add_all(cases, Replicated{});
  for (const bool recompute : {false, true})
    add(cases, Way<RunTimeSharded>{.strategy = {FullyShard<>{}}, .ranks = 1, .recompute = recompute});
  return cases;
}

void run(int rounds) {
  std::vector<Case> cases = all_cases();
  for (int round = 0; round < rounds; ++round) {
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

int number_of(const char* text) {
  int number = 0;
  const char* const end = text + std::strlen(text);
  const auto [stopped, error] = std::from_chars(text, end, number);
  require<InputError>(error == std::errc() && stopped == end && number > 0, "usage: tessera_bench_plan [ROUNDS]");
  return number;
}

}  // namespace
}  // namespace fsdp::bench

int main(int argc, char** argv) try {
  fsdp::require<fsdp::InputError>(argc <= 2, "usage: tessera_bench_plan [ROUNDS]");
  fsdp::bench::run(argc == 2 ? fsdp::bench::number_of(argv[1]) : 5);
  return 0;
} catch (const fsdp::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
