// SPDX-License-Identifier: Apache-2.0
// Unsharded gradients and optimizer states by name equal those of a replica.
#include <tessera/fsdp/module/host_weights.hpp>

#include <gtest/gtest.h>

#include <string>

#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/testing/report.hpp>

#include <support/nets.hpp>

namespace fsdp::test {
namespace {

/// Returns the gradients of the second step's pass and the optimizer states after the first step.
template <class Precision, class Sharding>
Whole seen(int ranks, const Sharding& strategy) {
  return of_first_rank(ranks, [&](Comm& communicator) {
    Initialized<Sharding, Precision> sharded(communicator, net::units(3), strategy,
                                             {.unit_options = {.frozen = {"unit1.b"}}});
    const net::Loop run{.uses = {0, 1, 2}};
    EXPECT_THROW(with_full_gradients(sharded.module(), {"*"}, [](const Parameter&, Tensor<const float>) {}),
                 LogicError);
    sharded.step(net::train(sharded, run), {.lr = 1e-2});
    const double loss = net::train(sharded, run);
    const auto resting = sharded.held().bytes;
    Whole mine;
    const auto keep = [&](const std::string& name, Tensor<const float> values) {
      EXPECT_TRUE(mine.emplace(name, net::Values(values.data(), values.data() + values.numel())).second) << name;
    };
    with_full_gradients(sharded.module(), {"*"}, [&](const Parameter& parameter, Tensor<const float> values) {
      EXPECT_EQ(values.shape(), parameter.shape);
      keep(parameter.name, values);
    });
    optim::with_full_states(sharded.module(), sharded.optimizer(), {"unit0.*", "unit2.w"},
                            [&](const Parameter& parameter, std::string_view state, Tensor<const float> values) {
                              EXPECT_EQ(values.shape(), parameter.shape);
                              keep(parameter.name + ":" + std::string(state), values);
                            });
    EXPECT_EQ(sharded.held().bytes, resting);
    sharded.step(loss, {.lr = 1e-2});
    EXPECT_EQ(mine.size(), 5u + 6u);
    EXPECT_EQ(mine.count("unit1.b"), 0u);
    return mine;
  });
}

void expect_near(const Whole& found, const Whole& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected)
    testing::expect_near("whole values are those of replicas", "groups of two", name, found.at(name), values);
}

TEST(FullValues, MatchThoseOfReplicasUnderEveryStrategy) {
  for (const int ranks : {1, 3}) {
    const Whole expected = seen<Fp32>(ranks, Replicated{});
    for (const RunTimeAny& strategy : sharded_strategies()) {
      SCOPED_TRACE(message(ranks, " ranks, ", strategy.text()));
      EXPECT_EQ(seen<Fp32>(ranks, strategy), expected);
    }
  }
  const Whole expected = seen<Fp32>(4, Replicated{});
  expect_near(seen<Fp32>(4, RunTimeAny{.strategy = HybridShard<RunTimeSharded>{.group = 2}}), expected);
  expect_near(seen<Fp32>(4, RunTimeHybridFull{.group = 2}), expected);
  EXPECT_EQ(seen<Bf16Mixed>(3, RunTimeAny{.strategy = FullyShard<>{}}), seen<Bf16Mixed>(3, Replicated{}));
}

/// A step on gradients and states that were written equals one whose gradients were computed so.
TEST(FullValues, WrittenGradientsAndStatesAreThoseOfTheNextStep) {
  const auto weights_after = [](int ranks, const RunTimeAny& strategy, float factor) {
    return of_first_rank(ranks, [&](Comm& communicator) {
      Initialized<RunTimeAny> sharded(communicator, net::units(3), strategy);
      net::train(sharded, {.uses = {0, 1, 2}});
      with_full_gradients(
          sharded.module(), {"*"},
          [&](const Parameter&, Tensor<float> values) {
            for (std::int64_t i = 0; i < values.numel(); ++i) values.data()[i] = factor * static_cast<float>(i % 7);
          },
          Access::write);
      optim::with_full_states(
          sharded.module(), sharded.optimizer(), {"unit1.w"},
          [&](const Parameter&, std::string_view, Tensor<float> values) {
            if (communicator.rank() == ranks - 1) std::fill_n(values.data(), values.numel(), 0.25f);
          },
          Access::write, ranks - 1);
      sharded.step(0, {.lr = 1e-2});
      return net::weights(sharded);
    });
  };
  const Whole expected = weights_after(1, {.strategy = Replicated{}}, 0.5f);
  EXPECT_NE(weights_after(1, {.strategy = Replicated{}}, 0.25f), expected);
  for (const RunTimeAny& strategy : sharded_strategies()) EXPECT_EQ(weights_after(3, strategy, 0.5f), expected);
  EXPECT_EQ(weights_after(3, {.strategy = Replicated{}}, 0.5f), expected);
}

}  // namespace
}  // namespace fsdp::test
