// SPDX-License-Identifier: Apache-2.0
// 04: a sharding strategy of your own, defined by rules or by a schedule.
//
// Prints the schedule of a step, then trains with each of the two definitions: the losses are bit-identical. Then it
// removes one gather from the schedule: the library rejects the schedule before it allocates memory, and reports the
// task that fails. The functions in strategy.hpp are constexpr, so the compiler can already validate schedules: with
// -DCASE=1, which has a Stack of an invalid strategy, it prints the text that is quoted after "expect 1".
//
// Try next: change prefetch_depth in strategy.hpp to 2, and see the gathers move up. Test a strategy with
// 09_test_a_policy.
//
// expect 1: `sentence` of the note names the task: the weights of {group} are not gathered; gather them before
// expect 1 of g++: "sharding: task 3, forward block 0: the weights of block 0 are not gathered; gather them before
// expect 1 of clang++: 3, fsdp::sharding::Action::forward, 1,
#include <cstdio>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/sharding/own_strategy.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/report/report.hpp>

#include "strategy.hpp"

namespace {

using Comm = fsdp::comm::Threads<>;

// A Stack requires the same; here it is checked next to the strategy.
static_assert(fsdp::sharding::holds<mine::ByRules>() && fsdp::sharding::holds<mine::BySchedule>());

/// BySchedule without one of its gathers. The compiler checks the default number; other numbers are checked at run
/// time.
template <int by_default = 0>
struct Without : mine::BySchedule {
  int gather = by_default;  ///< number of the omitted gather, counted from 1; 0: none is omitted

  constexpr fsdp::sharding::Schedule schedule(const fsdp::sharding::Problem& problem) const {
    fsdp::sharding::Schedule list = mine::BySchedule::schedule(problem);
    int gathers = 0;
    std::erase_if(list, [&](const fsdp::sharding::Task& task) {
      return task.action == fsdp::sharding::Action::gather && ++gathers == gather;
    });
    return list;
  }
};

#if CASE == 1
using Refused = fsdp::Stack<Without<2>, Comm, fsdp::Fp32>;
static_assert(Refused::mesh_axes == 1);
#endif

/// Trains 20 steps on two ranks and returns the losses.
template <class Strategy>
std::vector<double> train(bool print, Strategy strategy = {}) {
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
    fsdp::train::Training<Model> training(ranks, model, {.sequence_length = length, .threads = 1}, strategy);
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
    Without<> broken;
    broken.gather = 2;
    train(false, broken);
  } catch (const fsdp::Error& error) {
    std::printf("a gather left out: %s\n", error.what());
    return by_rules == by_schedule ? 0 : 1;
  }
  return 1;
}
