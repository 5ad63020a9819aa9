// SPDX-License-Identifier: Apache-2.0
// Gradients at rest: of a loss over two inputs, dropped, modified by the caller. Shards that keep their addresses.
#include <gtest/gtest.h>

#include <range/v3/view/enumerate.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include <support/nets.hpp>
#include <tessera/fsdp/module/host_weights.hpp>

namespace fsdp::test {
namespace {

static_assert(!std::is_copy_constructible_v<Net<RunTimeAny>> && !std::is_copy_assignable_v<Net<RunTimeAny>>);
static_assert(!std::is_copy_constructible_v<Net<RunTimeAny>::Module>);

const RunTimeAny fsdp2{.strategy = FullyShard<>{}};

/// Both inputs run forward through both units before backward; the loss is half the squared distance of the outputs.
template <class SharedT>
double train_pair(SharedT& sharded) {
  const int rank = sharded.module().communicator().rank();
  auto pass = sharded.train();
  std::vector<net::Walk> walks;
  for (const int input : {0, 1}) {
    net::Walk& walk = walks.emplace_back(net::Walk{net::inputs({.rank = rank, .micro_batch = input})});
    for (const int unit : {0, 1}) walk.forward(pass.forward(unit));
  }
  const double loss = net::error(walks[1].x, walks[0].x);
  std::ranges::transform(walks[1].x, walks[0].x.begin(), std::negate());
  for (const std::size_t input : {1, 0})
    for (const int unit : {1, 0}) walks[input].backward(pass.backward(unit));
  pass.finish();
  return loss;
}

/// The network is affine: the loss of a pair depends on the difference of its inputs alone, and biases have no
/// gradient.
TEST(Gradients, OfALossOverTwoInputsMatchThoseOfTheirDifference) {
  const auto check = [](const auto& strategy) {
    on_ranks(2, [&](Comm& communicator) {
      Initialized<std::remove_cvref_t<decltype(strategy)>> sharded(communicator, net::units(2), strategy,
                                                                   {.orders = {mirrored(std::vector{0, 1, 0, 1})}});
      std::vector<double> losses;
      for (int step = 0; step < 3; ++step) losses.push_back(sharded.step(train_pair(sharded), {.lr = 1e-2}).loss);
      EXPECT_LT(losses[2], losses[0]);
      train_pair(sharded);
      with_full_gradients(sharded.module(), {"*"}, [&](const Parameter& parameter, Tensor<const float> values) {
        float largest = 0;
        for (const float value : std::span(values.data(), static_cast<std::size_t>(values.numel())))
          largest = std::max(largest, std::abs(value));
        if (parameter.name == "unit1.b") {
          EXPECT_LT(largest, 1e-5f);
        }
        if (parameter.shape.rank == 2) {
          EXPECT_GT(largest, 1e-3f);
        }
      });
    });
  };
  check(fsdp2);
  check(RunTimeAny{.strategy = Zero1{}});
  check(Replicated{});
}

TEST(Gradients, AreDroppedIfNoStepFollowsThePass) {
  on_ranks(2, [](Comm& communicator) {
    const net::Loop first{.uses = {0, 1}, .micro_batches = 2}, other{.uses = {0, 1}, .micro_batches = 1, .step = 9};
    const auto trained = [&](bool dropped) {
      Initialized<RunTimeAny> sharded(communicator, net::units(2), fsdp2, {.micro_batches = 2});
      if (dropped) net::train(sharded, other);
      sharded.step(net::train(sharded, first), {.lr = 1e-2});
      return net::weights(sharded);
    };
    EXPECT_EQ(trained(true), trained(false));
  });
}

TEST(Gradients, MayBeModifiedAtRestAndTheNormReflectsIt) {
  on_ranks(3, [](Comm& communicator) {
    Initialized<RunTimeAny> sharded(communicator, net::units(2), fsdp2);
    const double loss = net::train(sharded, {.uses = {0, 1}});
    constexpr float most = 0.25f;
    double squares = 0, changed = 0;
    for (const auto& group : sharded.module().groups())
      for (float& value :
           std::span(group.main_gradient().data(), static_cast<std::size_t>(group.main_gradient().size()))) {
        changed += std::abs(value) > most ? 1 : 0;
        value = std::clamp(value, -most, most);
      }
    for (const auto& piece : sharded.shards())
      for (const double value : std::span(piece.gradient.data(), static_cast<std::size_t>(piece.gradient.numel()))) {
        EXPECT_LE(std::abs(value), static_cast<double>(most));
        squares += value * value;
      }
    EXPECT_GT(comm::sum_over_ranks(communicator, changed, {"test"}), 0);
    const double norm = std::sqrt(comm::sum_over_ranks(communicator, squares, {"test"}));
    EXPECT_NEAR(sharded.step(loss, {.lr = 1e-2}).norm, norm, 1e-6 * norm);
  });
}

/// If gradients are reduced in the last micro-batch only, a use in that micro-batch sees the rank's local sum, which
/// may be modified.
TEST(Gradients, AUseCanReadAndDropUnreducedGradients) {
  const auto check = [](const auto& strategy) {
    on_ranks(2, [&](Comm& communicator) {
      Initialized<std::remove_cvref_t<decltype(strategy)>> sharded(communicator, net::units(1), strategy,
                                                                   {.micro_batches = 2});
      const bool drops = communicator.rank() == 1;
      net::Values own, sum(net::width * net::width);  // of this rank: of one micro-batch, and of both
      auto pass = sharded.train();
      for (int m = 0; m < 2; ++m) {
        const net::Values x = net::inputs({.rank = communicator.rank(), .micro_batch = m});
        pass.forward(0).done();
        auto use = pass.backward(0);
        const GradientView<float> view = use.gradient(0);
        if (m == 1) {
          EXPECT_TRUE(std::equal(own.begin(), own.end(), view.tensor.data()));
          if (drops) std::fill_n(view.tensor.data(), view.tensor.numel(), 0.0f);
        }
        own.assign(net::width * net::width, 0);
        bool written = false;
        net::backward(use.weight(0), GradientView<float>{Tensor<float>(own.data(), view.tensor.shape()), &written}, {},
                      x, x);
        net::backward(use.weight(0), view, use.gradient(1), x, x);
        if (m == 1 || !drops) std::transform(sum.begin(), sum.end(), own.begin(), sum.begin(), std::plus());
      }
      pass.finish();
      for (float& value : sum) value = static_cast<float>(comm::sum_over_ranks(communicator, value, {"test"}));
      with_full_gradients(sharded.module(), {"unit0.w"}, [&](const Parameter&, Tensor<const float> found) {
        for (const auto& [i, expected] : ranges::views::enumerate(sum)) EXPECT_NEAR(found.data()[i], expected, 1e-6);
      });
    });
  };
  check(RunTimeAny{.strategy = Zero1{}});
  check(Replicated{});
}

TEST(Pieces, KeepTheirAddressesAndShowTheWeightsOfEachStep) {
  on_ranks(2, [](Comm& communicator) {
    Initialized<RunTimeAny> sharded(communicator, net::units(2), {.strategy = Zero3{}});
    const auto pieces = sharded.shards();  // a copy
    for (int step = 0; step < 3; ++step) {
      net::steps(sharded, {.uses = {0, 1}, .step = step}, 1);
      const auto whole = net::weights(sharded);
      for (const auto& piece : pieces)
        ASSERT_TRUE(std::equal(piece.main.data(), piece.main.data() + piece.main.numel(),
                               whole.at(piece.parameter->name).begin() + piece.begin))
            << piece.parameter->name;
    }
  });
}

}  // namespace
}  // namespace fsdp::test
