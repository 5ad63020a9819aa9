// SPDX-License-Identifier: Apache-2.0
// 04: a sharding strategy of your own, defined by rules or by a schedule.
//
// Prints the schedule of a step, then trains with each of the two definitions: the losses are bitwise equal. Then it
// removes one gather from the schedule: the library refuses it before it allocates memory, and names the task that
// fails.
//
// Try next: change prefetch_depth in strategy.hpp to 2, and see the gathers move up. Test a strategy with
// 09_test_a_policy.
#include <cstdio>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/report/report.hpp>

#include "strategy.hpp"

namespace {

using Comm = fsdp::comm::Threads<>;

/// BySchedule without its second gather.
struct Broken : mine::BySchedule {
  fsdp::sharding::Schedule schedule(const fsdp::sharding::Problem& problem) const {
    fsdp::sharding::Schedule list = mine::BySchedule::schedule(problem);
    int gathers = 0;
    std::erase_if(list, [&](const fsdp::sharding::Task& task) {
      return task.action == fsdp::sharding::Action::gather && ++gathers == 2;
    });
    return list;
  }
};

/// Trains 20 steps on two ranks and returns the losses.
template <class Strategy>
std::vector<double> train(bool print) {
  using Model = fsdp::Llama<fsdp::Stack<Strategy, Comm, fsdp::Fp32, fsdp::tiling::Untiled>>;
  std::vector<double> losses;
  Comm::run(2, {}, [&](Comm& ranks) {
    constexpr int length = 32;
    const Model model({.vocab_size = 100,
                       .hidden_size = 32,
                       .intermediate_size = 64,
                       .layers = 2,
                       .heads = 4,
                       .kv_heads = 4,
                       .head_dim = 8});
    fsdp::train::Training<Model> training(ranks, model, {.sequence_length = length, .threads = 1});
    training.initialize(1);
    const auto& module = training.module();
    const bool first = ranks.rank() == 0;
    if (first && print)
      std::puts(fsdp::report::schedule_text(module.schedule(fsdp::sharding::Pass::train), module.names()).c_str());
    std::vector<std::int32_t> numbers(length + 1);
    const fsdp::TokenBatch batch{{numbers.data(), {length}}, {numbers.data() + 1, {length}}, 1};
    for (int step = 0; step < 20; ++step) {
      for (int i = 0; i <= length; ++i) numbers[i] = (7 * step + ranks.rank() + i) % 100;
      const double loss = training.step(batch, {.lr = 3e-3});
      if (first) losses.push_back(loss);
    }
  });
  return losses;
}

}  // namespace

int main() {
  const std::vector<double> by_rules = train<mine::ByRules>(true), by_schedule = train<mine::BySchedule>(false);
  std::printf("by rules:    loss %.17g, then %.17g\n", by_rules.front(), by_rules.back());
  std::printf("by schedule: loss %.17g, then %.17g\n", by_schedule.front(), by_schedule.back());
  try {
    train<Broken>(false);
  } catch (const fsdp::Error& error) {
    std::printf("a gather left out: %s\n", error.what());
    return by_rules == by_schedule ? 0 : 1;
  }
  return 1;
}
