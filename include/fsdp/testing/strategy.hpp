// SPDX-License-Identifier: Apache-2.0
/// @file
/// The suite of a sharding strategy: its lists are sound, it trains as Replicated does, takes the bytes that were
/// planned and sends what its list says.
///
///   using namespace fsdp::testing;
///   INSTANTIATE_TYPED_TEST_SUITE_P(Mine, StrategySuite, mine::Sharding);
///
/// The parameter is a strategy that has a default constructor, or a struct with
/// `static std::vector<Strategy> strategies()`, the values to be tested. A small Llama of odd sizes is trained over
/// Threads in fp32. A strategy on a mesh of two axes is tested on the numbers of ranks that its ranks_per_group
/// divides.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <comm/threads.hpp>
#include <fsdp/buffer/any_layout.hpp>
#include <fsdp/core/policy_text.hpp>
#include <fsdp/models/llama.hpp>
#include <fsdp/optim/adamw.hpp>
#include <fsdp/plan/dry_run.hpp>
#include <fsdp/sharding/strategies.hpp>
#include <fsdp/testing/report.hpp>
#include <fsdp/train/training.hpp>

namespace fsdp::testing {

template <class Strategy>
using StrategyModel = Llama<Stack<Strategy, comm::Threads<>, Fp32, tiling::RunTime>>;

/// One way to train.
struct StrategyCase {
  int ranks = 1;
  int micro_batches = 1;
  bool tied = false;
  Units units = {};

  std::string in_words() const {
    return message(ranks, ranks == 1 ? " rank, " : " ranks, ", micro_batches,
                   micro_batches == 1 ? " micro-batch" : " micro-batches", tied ? ", embedding and head tied" : "",
                   units.recompute ? ", blocks recomputed" : "",
                   units.frozen.empty() ? "" : message(", frozen ", units.frozen.front()),
                   units.replicated.empty() ? "" : message(", replicated ", units.replicated.front()),
                   units.blocks_per_unit == 1 ? "" : message(", ", units.blocks_per_unit, " blocks in a unit"));
  }
};

/// Every number of ranks that shows a mistake of its own, and every kind of unit.
inline std::vector<StrategyCase> strategy_cases() {
  std::vector<StrategyCase> cases;
  for (const int ranks : {1, 2, 3, 4})
    for (const int micro_batches : {1, 3}) cases.push_back({.ranks = ranks, .micro_batches = micro_batches});
  for (const int ranks : {2, 4}) {
    cases.push_back({.ranks = ranks, .micro_batches = 2, .tied = true});
    cases.push_back({.ranks = ranks, .micro_batches = 2, .units = {.recompute = true}});
    cases.push_back({.ranks = ranks, .units = {.blocks_per_unit = 2}});
    cases.push_back({.ranks = ranks, .units = {.replicated = {"*norm*"}}});
    cases.push_back({.ranks = ranks, .micro_batches = 2, .units = {.frozen = {"model.layers.1.*"}}});
  }
  return cases;
}

/// What a run of some steps left behind.
struct StrategyRun {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> weights;  ///< whole tensors by name
  device::BytesByKind planned{}, taken{};             ///< of rank 0
  std::int64_t gathers = 0, reductions = 0;           ///< that rank 0's list has in a step
  std::int64_t gathered = 0, reduced = 0;             ///< collectives that rank 0 took part in, in one step
};

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

/// Tokens of one rank's micro-batch in one step; each rank's are others.
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

/// Collectives of all axes.
template <class Module>
std::int64_t recorded(Module& module, std::string_view what) {
  std::int64_t count = 0;
  for (auto* axis : module.communicators())
    count += std::ranges::count(axis->monitor().records, what,
                                [](const comm::Record& record) { return std::string_view(record.label.what); });
  return count;
}

template <class Module>
void collect(const Module& module, std::mutex& mutex, std::map<std::string, std::vector<float>>& weights) {
  const std::scoped_lock lock(mutex);
  for (const auto& piece : module.pieces()) {
    if (!piece.owned) continue;
    std::vector<float>& whole = weights[piece.parameter->name];
    whole.resize(static_cast<std::size_t>(piece.parameter->shape.numel()));
    std::copy_n(piece.main.data(), piece.main.numel(), whole.begin() + piece.begin);
  }
}

}  // namespace detail

/// Trains some steps. Throws what the first rank that failed has thrown.
template <class Strategy>
StrategyRun train_with(const Strategy& strategy, const StrategyCase& how) {
  using Model = StrategyModel<Strategy>;
  using Comm = comm::Threads<>;
  StrategyRun run;
  std::mutex mutex;
  Comm::run(how.ranks, {.record = true}, [&](Comm& communicator) {
    train::Training<Model, optim::AdamW> training(communicator, Model(detail::strategy_config(how.tied), how.units),
                                                  detail::strategy_size(how), strategy);
    training.initialize(3);
    auto& module = training.module();
    std::vector<detail::StrategyBatch> held;
    std::vector<TokenBatch> batches;
    for (int i = 0; i < how.micro_batches; ++i) held.emplace_back(communicator.rank(), i);
    for (const detail::StrategyBatch& batch : held) batches.push_back(batch.view());
    std::vector<double> losses;
    for (int step = 0; step < detail::strategy_steps; ++step) {
      for (auto* axis : module.communicators()) axis->monitor().records.clear();
      losses.push_back(training.step(batches, {.lr = 1e-2}));
    }
    const std::int64_t gathered = detail::recorded(module, "weights");
    const std::int64_t reduced = detail::recorded(module, "gradients");
    training.executor().evaluate(batches.front());
    module.synchronize();
    detail::collect(module, mutex, run.weights);
    if (communicator.rank() != 0) return;
    const auto in_list = [&](sharding::Action action) {
      return std::ranges::count(module.schedule(sharding::Pass::train), action, &sharding::Task::action);
    };
    run.losses = losses;
    run.planned = training.plan().bytes;
    run.taken = module.peak_bytes();
    run.gathers = in_list(sharding::Action::gather);
    run.reductions = in_list(sharding::Action::reduce);
    run.gathered = gathered;
    run.reduced = reduced;
  });
  return run;
}

namespace detail {

template <class Strategy>
bool takes_ranks(const Strategy& strategy, int ranks) {
  if constexpr (mesh_axes_of<Strategy> == 2) return ranks % strategy.ranks_per_group() == 0;
  return true;
}

/// Calls expect(case, run) for every case, until one fails. An error that a run ends with is a failure.
template <class Strategy, class Expect>
void check_runs(std::string_view asked, const Strategy& strategy, Expect expect) {
  int tried = 0;
  for (const StrategyCase& how : strategy_cases()) {
    if (!takes_ranks(strategy, how.ranks)) continue;
    ++tried;
    try {
      if (!expect(how, train_with(strategy, how))) return;
    } catch (const std::exception& error) {
      return void(fail(asked, how.in_words(), message("training ended with an error: ", error.what())));
    }
  }
  if (tried == 0) fail(asked, "1 to 4 ranks", "ranks_per_group() divides none of them");
}

/// Equal to the bit, or within 1e-4 of the largest.
inline bool expect_same(std::string_view asked, const StrategyCase& how, std::string_view which,
                        const std::vector<float>& found, const std::vector<float>& expected, bool to_the_bit) {
  if (to_the_bit) return expect_values(asked, how.in_words(), which, found, expected);
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!(std::abs(found[i] - expected[i]) <= 1e-4f * largest))
      return fail(
          asked, how.in_words(),
          message(which, ": element ", i, " is ", in_words(found[i]), " instead of about ", in_words(expected[i])));
  return true;
}

}  // namespace detail

/// Lists of all passes on up to 8 ranks, judged without memory.
template <class Strategy>
void check_strategy_lists(const Strategy& strategy) {
  constexpr std::string_view asked =
      "every list of the strategy passes sharding::check: weights are there when they are used, every gradient is "
      "reduced exactly once, no slot has two holders";
  std::vector<StrategyCase> cases = strategy_cases();
  for (const int micro_batches : {1, 2, 3}) cases.push_back({.ranks = 8, .micro_batches = micro_batches});
  for (const StrategyCase& how : cases) {
    if (!detail::takes_ranks(strategy, how.ranks)) continue;
    for (const Purpose purpose : {Purpose::train, Purpose::generate}) {
      try {
        const StrategyModel<Strategy> model(detail::strategy_config(how.tied), how.units);
        plan::dry_run(model, strategy, {}, train::plan_request(detail::strategy_size(how), how.ranks, 0, purpose),
                      optim::AdamW{});
      } catch (const std::exception& error) {
        return void(fail(asked, message(how.in_words(), purpose == Purpose::train ? ", training" : ", generating"),
                         error.what()));
      }
    }
  }
}

/// Whether its sums can have the bits of Replicated's: two axes add in another order, and a layout with other gaps
/// between weights may let others share a matmul.
template <class Strategy>
inline constexpr bool adds_in_the_usual_order = mesh_axes_of<Strategy> == 1 &&
                                                (std::is_same_v<typename Strategy::Layout, buffer::PerParameter> ||
                                                 std::is_same_v<typename Strategy::Layout, buffer::Flat> ||
                                                 std::is_same_v<typename Strategy::Layout, buffer::Owned> ||
                                                 std::is_same_v<typename Strategy::Layout, buffer::AnyLayout>);

template <class Strategy>
void check_strategy_trains(const Strategy& strategy) {
  detail::check_runs(
      "training ends without an error", strategy, [&](const StrategyCase& how, const StrategyRun& found) {
        const StrategyRun expected = train_with(Replicated{}, how);
        // Replicated reduces once a step. Where ranks are added in every micro-batch the order is another one.
        const bool to_the_bit =
            adds_in_the_usual_order<Strategy> && (how.micro_batches == 1 || found.reductions == expected.reductions);
        const std::string asked = message("losses and weights are those of Replicated on as many ranks, ",
                                          to_the_bit ? "to the bit" : "within 1e-4 of the largest");
        if (!(expected.losses.back() < expected.losses.front()))
          return fail(asked, how.in_words(), "Replicated learns nothing, so that nothing is shown");
        const std::vector<float> found_losses(found.losses.begin(), found.losses.end());
        const std::vector<float> losses(expected.losses.begin(), expected.losses.end());
        bool same = detail::expect_same(asked, how, "the losses of the steps", found_losses, losses, to_the_bit);
        for (const auto& [name, weights] : expected.weights) {
          const auto at = found.weights.find(name);
          if (at == found.weights.end()) return fail(asked, how.in_words(), message("no rank holds ", name));
          same = same && detail::expect_same(asked, how, name, at->second, weights, to_the_bit);
        }
        return same;
      });
}

template <class Strategy>
void check_strategy_memory(const Strategy& strategy) {
  constexpr std::string_view asked = "rank 0 takes as many bytes of every kind as its dry run planned";
  detail::check_runs(asked, strategy, [&](const StrategyCase& how, const StrategyRun& found) {
    bool same = true;
    for (std::size_t kind = 0; kind < found.planned.size(); ++kind)
      same = expect_value(asked, how.in_words(), device::memory_kind_names[kind], found.taken[kind],
                          found.planned[kind]) &&
             same;
    return same;
  });
}

template <class Strategy>
void check_strategy_collectives(const Strategy& strategy) {
  constexpr std::string_view asked =
      "a step starts one collective for every gather and every reduction of its list, and no other for weights and "
      "gradients";
  detail::check_runs(asked, strategy, [&](const StrategyCase& how, const StrategyRun& found) {
    if (how.ranks == 1 || mesh_axes_of<Strategy> == 2) return true;  // an axis of one rank sends nothing
    return expect_value(asked, how.in_words(), "the number of gathers", found.gathered, found.gathers) &&
           expect_value(asked, how.in_words(), "the number of reductions", found.reduced, found.reductions);
  });
}

/// The values of a suite's parameter.
template <class Tested>
auto strategies_of() {
  if constexpr (requires { Tested::strategies(); }) {
    return Tested::strategies();
  } else {
    static_assert(std::is_default_constructible_v<Tested>,
                  "fsdp: this strategy has no default constructor, so the suite does not know its numbers; give it a "
                  "struct with `static std::vector<Strategy> strategies()`");
    return std::vector<Tested>{Tested{}};
  }
}

template <class Tested>
class StrategySuite : public ::testing::Test {
 protected:
  /// Calls check(strategy) for every value.
  template <class Check>
  static void each(Check check) {
    for (const auto& strategy : strategies_of<Tested>()) {
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, policy_text(strategy));
      check(strategy);
    }
  }
};
TYPED_TEST_SUITE_P(StrategySuite);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StrategySuite);  // checks may be called without it

#define FSDP_STRATEGY(test, check)                             \
  TYPED_TEST_P(StrategySuite, test) {                          \
    this->each([](const auto& strategy) { check(strategy); }); \
  }
FSDP_STRATEGY(MakesSoundLists, check_strategy_lists)
FSDP_STRATEGY(TrainsAsReplicatedDoes, check_strategy_trains)
FSDP_STRATEGY(TakesTheBytesThatWerePlanned, check_strategy_memory)
FSDP_STRATEGY(SendsWhatItsListSays, check_strategy_collectives)
#undef FSDP_STRATEGY

REGISTER_TYPED_TEST_SUITE_P(StrategySuite, MakesSoundLists, TrainsAsReplicatedDoes, TakesTheBytesThatWerePlanned,
                            SendsWhatItsListSays);

}  // namespace fsdp::testing
