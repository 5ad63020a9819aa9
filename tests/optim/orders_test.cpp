// SPDX-License-Identifier: Apache-2.0
// Several orders of one object: a generator and a discriminator, each updated after its own passes only.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <support/nets.hpp>

namespace fsdp::test {
namespace {

constexpr int of_generator = 0, of_discriminator = 1;  // orders

/// Units 0 and 1 are the generator, 2 and 3 the discriminator.
std::vector<Unit> both_networks() {
  std::vector<Unit> units = net::units(2, "generator");
  for (Unit& unit : net::units(2, "discriminator")) units.push_back(std::move(unit));
  return units;
}
std::vector<Order> both_orders() {
  Order generates = mirrored(std::vector{0, 1, 2, 3});
  generates.without_gradients = {2, 3};
  return {generates, mirrored(std::vector{2, 3})};
}

/// One object that contains both networks, with the weights of seed 5.
template <class Sharding = RunTimeAny>
struct Both : Net<Sharding> {
  explicit Both(Comm& communicator, const Sharding& strategy = {.strategy = FullyShard<>{}})
      : Net<Sharding>(communicator, both_networks(), strategy, {.orders = both_orders(), .micro_batches = 2}) {
    this->initialize(5);
  }
};

/// The order of a step: two steps of the discriminator for each step of the generator.
int order_of(int step) { return step % 3 == 2 ? of_generator : of_discriminator; }
net::Loop run_of(int step) {
  const int order = order_of(step);
  return {.uses = order == of_generator ? std::vector{0, 1, 2, 3} : std::vector{2, 3},
          .micro_batches = 2,
          .order = order,
          .step = step};
}

template <class Sharding>
Whole together(Comm& communicator, const Sharding& strategy, int steps) {
  Both<Sharding> both(communicator, strategy);
  for (int step = 0; step < steps; ++step) both.step(net::train(both, run_of(step)), {.lr = 1e-2});
  EXPECT_EQ(both.held().bytes, both.planned().bytes);
  return net::weights(both);
}

/// The same training with two objects. The generator's pass continues through unsharded copies of the discriminator's
/// weights.
template <class Sharding>
Whole apart(Comm& communicator, const Sharding& strategy, int steps) {
  Net<Sharding> generator(communicator, net::units(2, "generator"), strategy, {.micro_batches = 2});
  Net<Sharding> discriminator(communicator, net::units(2, "discriminator"), strategy, {.micro_batches = 2});
  generator.initialize(5);
  discriminator.initialize(5);
  for (int step = 0; step < steps; ++step) {
    if (order_of(step) == of_discriminator) {
      const net::Loop run{.uses = {0, 1}, .micro_batches = 2, .step = step};
      discriminator.step(net::train(discriminator, run), {.lr = 1e-2});
      continue;
    }
    const Whole fixed = net::weights(discriminator);
    const auto tensor = [&](int unit, const char* name) {
      const net::Values& values = fixed.at("discriminator" + std::to_string(unit) + name);
      return Tensor<const float>(values.data(), {std::ssize(values)});
    };
    const GradientView<float> none;
    double loss = 0;
    auto pass = generator.train();
    for (int m = 0; m < 2; ++m) {
      const net::Place place{.rank = communicator.rank(), .micro_batch = m, .step = step};
      std::vector<net::Values> saved;
      net::Values x = net::inputs(place);
      for (int unit = 0; unit < 4; ++unit) {
        saved.push_back(x);
        if (unit < 2) {
          auto use = pass.forward(unit);
          x = net::forward_of(use, 2, x);
        } else {
          x = net::forward(tensor(unit - 2, ".w"), tensor(unit - 2, ".b"), x);
        }
      }
      loss += net::error(x, net::targets(place));
      for (int unit = 4; unit-- > 0;) {
        if (unit < 2) {
          auto use = pass.backward(unit);
          x = net::backward_of(use, 2, saved[static_cast<std::size_t>(unit)], x);
        } else {
          x = net::backward(tensor(unit - 2, ".w"), none, none, saved[static_cast<std::size_t>(unit)], x);
        }
      }
    }
    pass.finish();
    generator.step(loss, {.lr = 1e-2});
  }
  Whole all = net::weights(generator);
  all.merge(net::weights(discriminator));
  return all;
}

TEST(Orders, OfTwoNetworksAreBitIdenticalToTwoObjects) {
  const auto check = [](const auto& strategy, int ranks) {
    on_ranks(ranks, [&](Comm& communicator) {
      EXPECT_EQ(together(communicator, strategy, 7), apart(communicator, strategy, 7)) << policy_text(strategy);
    });
  };
  for (const RunTimeAny& strategy : sharded_strategies()) check(strategy, 2);
  check(RunTimeAny{.strategy = FullyShard<>{}}, 1);
  check(RunTimeAny{.strategy = FullyShard<>{}}, 3);
  check(Replicated{}, 2);
}

TEST(Orders, CountStepsForTheParametersThatTheyTrain) {
  on_ranks(2, [](Comm& communicator) {
    Both both(communicator);
    for (int step = 0; step < 6; ++step) {
      const Whole before = net::weights(both);
      both.step(net::train(both, run_of(step)), {.lr = 1e-2});
      for (const auto& [name, values] : net::weights(both))
        EXPECT_EQ(values != before.at(name), name.starts_with("generator") == (order_of(step) == of_generator)) << name;
    }
    EXPECT_EQ(both.optimizer().steps(), 6);
    EXPECT_EQ(both.optimizer().control().taken(), (std::vector<std::int64_t>{2, 4}));
  });
}

/// Clipping uses the norm of the gradients that the pass made.
TEST(Orders, ClipByTheNormOfTheirOwnGradients) {
  on_ranks(2, [](Comm& communicator) {
    Both both(communicator, RunTimeAny{.strategy = Zero3{}});
    Net<RunTimeAny> alone(communicator, net::units(2, "discriminator"), {.strategy = Zero3{}}, {.micro_batches = 2});
    alone.initialize(5);
    both.step(net::train(both, run_of(2)), {.lr = 0});
    const double norm = both.step(net::train(both, run_of(0)), {.lr = 0}).norm;
    EXPECT_EQ(norm, alone.step(net::train(alone, {.uses = {0, 1}, .micro_batches = 2}), {.lr = 0}).norm);
    EXPECT_GT(norm, 0);
  });
}

TEST(Orders, MakeNoGradientsForExcludedUnits) {
  on_ranks(1, [](Comm& communicator) {
    Both both(communicator);
    auto pass = both.train(1, of_generator);
    for (const int unit : {0, 1, 2, 3}) pass.forward(unit).done();
    {
      auto use = pass.backward(3);
      EXPECT_FALSE(use.gradient(0).wanted());
      EXPECT_EQ(use.gradient(0).tensor.shape(), (Shape{net::width, net::width}));
    }
    pass.forfeit();
    EXPECT_EQ(both.step(0, {.lr = 1e-2}).forfeited, 0);
  });
}

TEST(Orders, RefuseAnOrderNumberThatWasNotDeclared) {
  on_ranks(1, [](Comm& communicator) {
    Both both(communicator);
    EXPECT_THROW(both.train(1, 2), LogicError);
    EXPECT_THROW(both.train(1, -1), LogicError);
    EXPECT_THROW(both.evaluate(7), LogicError);
  });
}

TEST(Orders, KeepTheirStepCountsAfterANonFiniteLoss) {
  on_ranks(2, [](Comm& communicator) {
    Both both(communicator);
    for (int step = 0; step < 3; ++step) both.step(net::train(both, run_of(step)), {.lr = 1e-2});
    const Whole before = net::weights(both);
    net::train(both, run_of(3));
    EXPECT_THROW(both.step(NAN, {.lr = 1e-2}), DivergedError);
    EXPECT_EQ(net::weights(both), before);
    EXPECT_EQ(both.optimizer().control().taken(), (std::vector<std::int64_t>{1, 2}));
    EXPECT_EQ(both.step(net::train(both, run_of(2)), {.lr = 1e-2}).stopped, 0);
    EXPECT_EQ(both.optimizer().control().taken(), (std::vector<std::int64_t>{2, 2}));
  });
}

}  // namespace
}  // namespace fsdp::test
