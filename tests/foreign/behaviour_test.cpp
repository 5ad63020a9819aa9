// SPDX-License-Identifier: Apache-2.0
// Training is bit-identical with event loops, collectives of the host program, ranks that forfeit a step, and
// exceptions.
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include <tessera/comm/collectives.hpp>

#include "runs.hpp"

namespace fsdp::foreign {
namespace {

using Hooked = std::function<void(Comm&, Fsdp2&, Pass<Fsdp2::Stack>&, AnyPass&)>;

/// The settings of a run and the callbacks by which a test disturbs its passes.
struct Disturbed {
  int ranks = 3;
  int micro_batches = 1;
  RunTimeAny strategy = {FullyShard<>{}};
  std::vector<int> steps = {0, 1, 2};  ///< indices of the batches
  bool checks = false;                 ///< compares the arguments of collectives between ranks
  Hooked begin = [](Comm&, Fsdp2&, Pass<Fsdp2::Stack>&, AnyPass&) {};
  Hooked end = begin;
};

/// Makes a complete step and returns its decision.
device::StepDecision make_step(const Network& network, Comm& communicator, Fsdp2& sharded, int step,
                               const Disturbed& how) {
  auto pass = sharded.train();
  AnyPass any = any_pass(pass);
  how.begin(communicator, sharded, pass, any);
  const double loss = compute_all(network, any, step, communicator, how.micro_batches);
  how.end(communicator, sharded, pass, any);
  pass.finish();
  return sharded.step(loss, {.lr = lr});
}

Outcome train(const Network& network, const Disturbed& how = {}) {
  const auto steps = [&](Comm& communicator, Fsdp2& sharded) {
    std::vector<double> losses;
    for (const int step : how.steps) losses.push_back(make_step(network, communicator, sharded, step, how).loss);
    return losses;
  };
  return outcome_of(network, how.ranks, how.strategy, how.micro_batches, steps, how.checks);
}

/// Waits for a random time up to 200 microseconds that differs between ranks.
class Delays {
 public:
  explicit Delays(int rank) : engine_(static_cast<unsigned>(rank + 1)) {}
  void operator()() {
    const auto time = engine_() % 400;
    if (time < 200) std::this_thread::sleep_for(std::chrono::microseconds(time));
  }

 private:
  std::minstd_rand engine_;
};

std::vector<RunTimeAny> strategies() {
  return {{FullyShard<>{.prefetch_depth = 2}}, {Zero3{.persistence_threshold = 8}}, {Zero2{}}, {Zero1{}}};
}

TEST(EventLoop, PollingGivesBitIdenticalResults) {
  for (const Network& network : networks())
    for (const RunTimeAny& strategy : strategies()) {
      Disturbed how{.micro_batches = 2, .strategy = strategy, .steps = {0, 1}};
      const Outcome expected = train(network, how);
      for (const int most : {1, 3, 1000}) {
        SCOPED_TRACE(message(network.name, ", ", policy_text(strategy), ", poll(", most, ")"));
        const auto wait = [most](Pass<Fsdp2::Stack>& pass) {
          while (!pass.poll(most)) std::this_thread::yield();  // the host program's other work
        };
        how.begin = [wait](Comm& communicator, Fsdp2&, Pass<Fsdp2::Stack>& pass, AnyPass& any) {
          any.before = [wait, &pass, delay = Delays(communicator.rank())]() mutable {
            delay();
            wait(pass);
          };
          any.inside = [&pass] { pass.progress(); };
        };
        how.end = [wait](Comm&, Fsdp2&, Pass<Fsdp2::Stack>& pass, AnyPass&) { wait(pass); };
        expect_same(train(network, how), expected);
      }
    }
}

TEST(OwnCollectives, UserCollectivesInsideAndBetweenUsesMatchAcrossRanks) {
  for (const Network& network : networks())
    for (const RunTimeAny& strategy : strategies()) {
      Disturbed how{.micro_batches = 2, .strategy = strategy, .steps = {0, 1, 2, 3}};
      SCOPED_TRACE(message(network.name, ", ", policy_text(strategy)));
      const Outcome expected = train(network, how);
      how.begin = [](Comm& communicator, Fsdp2& sharded, Pass<Fsdp2::Stack>& pass, AnyPass& any) {
        auto add = [&sharded, delay = Delays(communicator.rank()), count = 0]() mutable {
          delay();
          Comm& own = sharded.module().communicator();
          std::array<double, 2> values{1.0 * own.rank(), 1.0 * ++count};
          comm::reduce(own, std::span<double>(values), comm::Reduction::sum);
          EXPECT_EQ(values, (std::array<double, 2>{3, 3.0 * count}));
          std::array<float, 3> each{1, 2, 3};
          const std::array<std::int64_t, 3> counts{1, 1, 1};
          const comm::Segment<float> segment{
              .local = &each[static_cast<std::size_t>(own.rank())], .full = each.data(), .counts = counts};
          comm::all_reduce<float>(own, std::span(&segment, 1)).wait();
          EXPECT_EQ(each, (std::array<float, 3>{3, 6, 9}));
        };
        any.before = [add, &pass, random = std::minstd_rand(static_cast<unsigned>(communicator.rank() + 1))]() mutable {
          for (auto polls = random() % 4; polls > 0; --polls) pass.poll(1);  // the number differs between ranks
          add();
        };
        any.inside = add;
      };
      for (const bool checks : {false, true}) {
        if (checks && policy_text(how.strategy) != policy_text(strategies().front())) continue;  // it suffices once
        how.checks = checks;
        expect_same(train(network, how), expected);
      }
    }
}

/// Number of computations of a micro-batch.
int computations_of(const Network& network) { return static_cast<int>(network.order.list.size()); }

/// Thrown by tests.
struct Broken : std::runtime_error {
  Broken() : std::runtime_error("broken") {}
};

/// Throws at computation number `at` of the pass, inside or before it.
void break_at(AnyPass& any, int at, bool inside) {
  (inside ? any.inside : any.before) = [at, count = 0]() mutable {
    if (count++ == at) throw Broken();
  };
}

TEST(Forfeit, AtAnyTaskOnAnyRankEqualsARunWithoutTheStep) {
  for (const Network& network : networks())
    for (const RunTimeAny& strategy : strategies()) {
      const Outcome expected = train(network, {.strategy = strategy, .steps = {0, 2}});
      for (int rank = 0; rank < 3; ++rank)
        for (int at = 0; at <= computations_of(network); ++at)
          for (const bool inside : {false, true}) {
            if (!inside && policy_text(strategy) != policy_text(strategies().front())) continue;  // it suffices once
            SCOPED_TRACE(message(network.name, ", ", policy_text(strategy), ", rank ", rank, inside ? " in" : " before",
                                 " computation ", at));
            const Outcome found = outcome_of(network, 3, strategy, 1, [&](Comm& communicator, Fsdp2& sharded) {
              std::vector<double> losses{make_step(network, communicator, sharded, 0, {}).loss};
              {
                auto pass = sharded.train();
                AnyPass any = any_pass(pass);
                if (communicator.rank() == rank) break_at(any, at, inside);
                double loss = std::numeric_limits<double>::quiet_NaN();
                try {
                  loss = network.compute(any, 1, communicator.rank(), 3);
                  if (communicator.rank() == rank) throw Broken();  // after the last computation
                  pass.finish();
                } catch (const Broken&) {
                  pass.forfeit();
                }
                const auto decision = sharded.step(loss, {.lr = lr});
                EXPECT_EQ(decision.forfeited, rank);
                EXPECT_EQ(decision.skipped, 1);
                EXPECT_EQ(decision.stopped, 0);
              }
              losses.push_back(make_step(network, communicator, sharded, 2, {}).loss);
              return losses;
            });
            expect_same(found, expected);
            if (::testing::Test::HasFailure()) return;
          }
    }
}

/// How ranks continue after an exception in a pass.
enum class After { unwinding, abandon };

/// Makes three steps; the pass of the second step is interrupted at a computation and then repeated.
Outcome train_with_exception(const Network& network, const Disturbed& how, int at, bool inside, After after) {
  const auto steps = [&](Comm& communicator, Fsdp2& sharded) {
    std::vector<double> losses{make_step(network, communicator, sharded, 0, how).loss};
    Disturbed broken = how;
    broken.begin = [&](Comm&, Fsdp2&, Pass<Fsdp2::Stack>&, AnyPass& any) { break_at(any, at, inside); };
    if (after == After::unwinding) {
      EXPECT_THROW(make_step(network, communicator, sharded, 1, broken), Broken);
    } else {
      auto pass = sharded.train();
      AnyPass any = any_pass(pass);
      break_at(any, at, inside);
      EXPECT_THROW(compute_all(network, any, 1, communicator, how.micro_batches), Broken);
      pass.abandon();
    }
    EXPECT_THROW(sharded.step(0, {.lr = lr}), LogicError);
    for (const int step : {1, 2}) losses.push_back(make_step(network, communicator, sharded, step, how).loss);
    EXPECT_EQ(sharded.held(), sharded.planned());
    return losses;
  };
  return outcome_of(network, how.ranks, how.strategy, how.micro_batches, steps);
}

TEST(Exception, AtAnyComputationTheStepCanBeRepeatedBitIdentically) {
  for (const Network& network : networks())
    for (const RunTimeAny& strategy : strategies()) {
      const Disturbed how{.micro_batches = 2, .strategy = strategy};
      const Outcome expected = train(network, how);
      for (int at = 0; at < 2 * computations_of(network); ++at)
        for (const bool inside : {false, true})
          for (const After after : {After::unwinding, After::abandon}) {
            if ((after == After::abandon || !inside) && policy_text(strategy) != policy_text(strategies().front()))
              continue;  // it suffices once
            SCOPED_TRACE(message(network.name, ", ", policy_text(strategy), inside ? ", in" : ", before",
                                 " computation ", at, after == After::abandon ? ", abandoned" : ""));
            expect_same(train_with_exception(network, how, at, inside, after), expected);
            if (::testing::Test::HasFailure()) return;
          }
    }
}

TEST(Step, ANonFiniteLossChangesNoWeightAndTrainingContinues) {
  const Network network = unet_network();
  const Outcome expected = train(network, {.steps = {0, 2}});
  const Outcome found = outcome_of(network, 3, {}, 1, [&](Comm& communicator, Fsdp2& sharded) {
    std::vector<double> losses{make_step(network, communicator, sharded, 0, {}).loss};
    auto pass = sharded.train();
    AnyPass any = any_pass(pass);
    const double loss = network.compute(any, 1, communicator.rank(), 3);
    pass.finish();
    EXPECT_THROW(sharded.step(communicator.rank() == 1 ? std::numeric_limits<double>::infinity() : loss, {.lr = lr}),
                 DivergedError);
    losses.push_back(make_step(network, communicator, sharded, 2, {}).loss);
    return losses;
  });
  expect_same(found, expected);
}

/// Makes all computations of a pass. Each computation adds the rounded weight of a tensor as its gradient: with few
/// bits, so that sums are exact in any order.
void walk(Pass<Fsdp2::Stack>& pass, const std::vector<Unit>& units) {
  while (const auto next = pass.next()) {
    const auto use = pass.enter();
    if (next->action == sharding::Action::forward) continue;
    for (std::size_t i = 0; i < units[static_cast<std::size_t>(next->index)].parameters.size(); ++i) {
      const auto weight = use.weight(i);
      const auto gradient = use.gradient(i);
      if (!gradient.wanted()) continue;
      const bool adds = gradient.next() == Write::accumulate;
      for (std::int64_t at = 0; at < weight.numel(); ++at)
        gradient.tensor.data()[at] =
            (adds ? gradient.tensor.data()[at] : 0) + std::round(weight.data()[at] * 4096) / 4096;
    }
  }
  pass.finish();
}

TEST(Orders, UpdateOnlyParametersThatTheyMakeGradientsOf) {
  const std::vector<Unit> units{{.name = "a", .parameters = {{.name = "a", .shape = {3, 5}}}},
                                {.name = "b", .parameters = {{.name = "b", .shape = {7}}}},
                                {.name = "c", .parameters = {{.name = "c", .shape = {4, 2}}}}};
  Order without_b = chain(3);
  without_b.without_gradients = {1};
  const std::vector<Order> orders{chain(3), mirrored({2, 0, 2}), without_b};
  const std::set<std::string> stepped[] = {{"a", "b", "c"}, {"a", "c"}, {"a", "c"}};
  std::vector<std::map<std::string, std::vector<float>>> all;
  for (const RunTimeAny& strategy : strategies())
    on_ranks(3, [&](Comm& communicator) {
      Fsdp2 sharded(communicator, units, strategy, {.orders = orders, .micro_batches = 2});
      sharded.initialize(seed);
      auto before = whole_weights(sharded);
      for (const int order : {0, 1, 2, 1, 0, 2}) {
        auto pass = sharded.train(2, order);
        walk(pass, units);
        sharded.step(0, {.lr = lr});
        const auto after = whole_weights(sharded);
        for (const auto& [name, weights] : after)
          EXPECT_EQ(weights != before.at(name), stepped[order].contains(name)) << name << " by order " << order;
        before = after;
      }
      EXPECT_EQ(sharded.held(), sharded.planned()) << policy_text(strategy);
      if (communicator.rank() == 0) all.push_back(before);
    });
  for (const auto& weights : all) EXPECT_EQ(weights, all.front());
}

TEST(Evaluation, BetweenStepsOrBeforeAnUpdateLeavesTrainingUnchanged) {
  for (const Network& network : networks()) {
    const Disturbed how;
    const Outcome expected = train(network, how);
    const auto evaluate = [](Fsdp2& sharded) {
      auto pass = sharded.evaluate();
      while (pass.next()) {
        const auto use = pass.enter();
        EXPECT_TRUE(std::isfinite(use.weight(0).data()[0]));
      }
      pass.finish();
    };
    const Outcome found = outcome_of(network, 3, how.strategy, 1, [&](Comm& communicator, Fsdp2& sharded) {
      std::vector<double> losses;
      for (const int step : how.steps) {
        evaluate(sharded);
        auto pass = sharded.train();
        AnyPass any = any_pass(pass);
        const double loss = network.compute(any, step, communicator.rank(), 3);
        pass.finish();
        evaluate(sharded);
        losses.push_back(sharded.step(loss, {.lr = lr}).loss);
      }
      return losses;
    });
    expect_same(found, expected);
  }
}

}  // namespace
}  // namespace fsdp::foreign
