// SPDX-License-Identifier: Apache-2.0
// A precision for each tensor: user-defined code with float norms next to bf16 matrices.
#include <tessera/fsdp/precision/by_tensor.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <support/nets.hpp>
#include <support/temporary_folder.hpp>
#include <tessera/fsdp/checkpoint/sharded.hpp>

namespace fsdp::test {
namespace {

using net::Values;
using Both = PrecisionBy<Fp32, Bf16Mixed>;
static_assert(check_precision<Both>() && has_float_weights<Both> && !has_float_weights<Bf16Mixed>);
static_assert(std::is_same_v<decltype(PrecisionBy{on("a", Fp32{}), otherwise(Bf16Mixed{})}), Both>);

template <class Precision, class Strategy = RunTimeAny>
using Mixed = Sharded<NetStack<Strategy, Precision>>;
const FloatWeights norms = PrecisionBy{on("norm", Fp32{}), otherwise(Bf16Mixed{})};

/// Units y = x + norm * (W x + b).
std::vector<Unit> units() {
  std::vector<Unit> list;
  for (const std::string name : {"u0", "u1", "u2", "u3"})
    list.push_back({.name = name,
                    .parameters = {{.name = name + ".w", .shape = {net::width, net::width}},
                                   {.name = name + ".norm", .shape = {net::width}, .initial = Initial::normal(0.5)},
                                   {.name = name + ".b", .shape = {net::width}, .initial = Initial::normal(0.1)}}});
  return list;
}

/// The weights of a use in float. Expects that each has the type that `floats` specify, and the main weights' values.
template <class UseT>
std::array<Values, 3> weights_of(const UseT& use, const Unit& unit, const FloatWeights& floats, const Whole& main) {
  std::array<typename UseT::View, 3> views;
  use.weights(views);
  std::array<Values, 3> list;
  for (std::size_t i = 0; i < 3; ++i)
    with_view(views[i], [&]<class T>(const Tensor<const T>& weight) {
      const Parameter& parameter = unit.parameters[i];
      EXPECT_EQ((std::is_same_v<T, float>), floats.contains(unit.name, parameter)) << parameter.name;
      for (std::int64_t at = 0; at < weight.numel(); ++at) {
        list[i].push_back(static_cast<float>(weight[at]));
        EXPECT_EQ(list[i].back(), static_cast<float>(T(main.at(parameter.name)[static_cast<std::size_t>(at)])))
            << parameter.name;
      }
    });
  return list;
}

/// Runs forward and backward of all micro-batches and returns this rank's loss.
template <class SharedT>
double compute(SharedT& sharded, int step, const FloatWeights& floats) {
  const std::vector<Unit> list = units();
  const Whole main = net::weights(sharded);
  double loss = 0;
  auto pass = sharded.train();
  for (int m = 0; m < sharded.module().settings().passes.micro_batches; ++m) {
    const net::Place place{.rank = sharded.module().communicator().rank(), .micro_batch = m, .step = step};
    std::vector<Values> saved;
    Values x = net::inputs(place);
    const auto inner = [&](const std::array<Values, 3>& w) {  // W x + b
      Values z = net::forward<float>({w[0].data(), {net::width, net::width}}, {w[2].data(), {net::width}}, x, 1);
      for (std::size_t i = 0; i < z.size(); ++i) z[i] -= x[i];
      return z;
    };
    for (int u = 0; u < 4; ++u) {
      const auto use = pass.forward(u);
      const auto w = weights_of(use, list[static_cast<std::size_t>(u)], floats, main);
      saved.push_back(x);
      const Values z = inner(w);
      for (std::size_t i = 0; i < z.size(); ++i) x[i] += w[1][i % net::width] * z[i];
    }
    loss += net::error(x, net::targets(place));
    for (int u = 3; u >= 0; --u) {
      const auto use = pass.backward(u);
      const auto w = weights_of(use, list[static_cast<std::size_t>(u)], floats, main);
      Values dy = std::exchange(x, saved[static_cast<std::size_t>(u)]), dz = dy, of_norm(net::width);
      const Values z = inner(w);
      for (std::size_t i = 0; i < z.size(); ++i) {
        of_norm[i % net::width] += dy[i] * z[i];
        dz[i] *= w[1][i % net::width];
      }
      const Values through = net::backward<float>({w[0].data(), {net::width, net::width}}, use.gradient(0),
                                                  use.gradient(2), x, dz, 1);
      net::write(use.gradient(1), of_norm);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = dy[i] + through[i] - dz[i];
    }
  }
  pass.finish();
  return loss;
}

struct Result {
  std::vector<double> losses;
  Whole first, weights;  ///< before and after all steps

  friend bool operator==(const Result&, const Result&) = default;
};

template <class SharedT>
Result train(SharedT& sharded, const FloatWeights& floats, int first = 0) {
  Result result{.first = net::weights(sharded)};
  for (int step = first; step < first + 3; ++step)
    result.losses.push_back(sharded.step(compute(sharded, step, floats), {.lr = 1e-2}).loss);
  result.weights = net::weights(sharded);
  EXPECT_EQ(sharded.planned(), sharded.held());
  return result;
}

template <class SharedT>
Result run(int ranks, const typename SharedT::Strategy& strategy, const typename SharedT::Settings& settings) {
  return of_first_rank(ranks, [&](Comm& communicator) {
    SharedT sharded(communicator, units(), strategy, settings);
    sharded.initialize(1);
    return train(sharded, settings.unit_options.precision);
  });
}

TEST(PrecisionBy, HandsOutEachTensorInItsTypeUnderAnyAssignmentOfStrategies) {
  RunTimeAny parts{.strategy = FullyShard<>{}};
  parts.units = {on("u1.w", RunTimeAny{Zero1{}}), on("norm", RunTimeAny{Replicated{}})};
  for (const int ranks : {1, 2, 3}) {
    const Mixed<Both>::Settings settings{.unit_options = {.precision = norms}};
    const Result expected = run<Mixed<Both>>(ranks, {.strategy = FullyShard<>{}}, settings);
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    for (const RunTimeAny& strategy :
         {RunTimeAny{Zero1{}}, RunTimeAny{Zero3{.persistence_threshold = net::width}}, RunTimeAny{Replicated{}},
          RunTimeAny{.strategy = Zero2{}, .other_layout = buffer::Owned{}}, parts}) {
      SCOPED_TRACE(message(policy_text(strategy), ", ", ranks, " ranks"));
      EXPECT_EQ(run<Mixed<Both>>(ranks, strategy, settings), expected);
    }
  }
}

TEST(PrecisionBy, AWeightOfAnotherTypeIsALogicErrorThatNamesIt) {
  on_ranks(2, [](Comm& communicator) {
    Mixed<Both> sharded(communicator, units(), {}, {.unit_options = {.precision = norms}});
    sharded.initialize(1);
    auto pass = sharded.train();
    const auto use = pass.forward(1);
    EXPECT_EQ(use.weight<float>("u1.norm").numel(), net::width);
    EXPECT_EQ(use.weight("u1.w").numel(), net::width * net::width);
    const auto error = [](const auto& call) { return error_of<LogicError>(call); };
    EXPECT_EQ(error([&] { use.weight("u1.norm"); }),
              "use: the weight 'u1.norm' is f32 (UnitOptions::precision), and bf16 was requested; write weight<float>");
    EXPECT_EQ(error([&] { use.weight<float>("u1.w"); }),
              "use: the weight 'u1.w' is bf16 (UnitOptions::precision), and f32 was requested; write weight<Compute>");
  });
}

TEST(PrecisionBy, FloatWeightsReduceInFloatOverABf16WireAndTheOptimizerMayBeOffloaded) {
  using Wire = Mixed<PrecisionBy<Fp32, Bf16Wire<Bf16Mixed>>, Offload<FullyShard<>>>;
  const UnitOptions options{.precision = norms};
  Comm::run(2, {.record = true}, [&](Comm& communicator) {
    Wire sharded(communicator, units(), {}, {.micro_batches = 2, .unit_options = options});
    sharded.initialize(1);
    train(sharded, norms);
    int found[2] = {};
    for (const comm::Record& record : communicator.monitor().records) {
      if (record.label.what != "gradients") continue;
      const bool is_float = sharded.module().names().groups[static_cast<std::size_t>(record.label.unit)].ends_with("fp32");
      EXPECT_EQ(record.dtype, is_float ? DType::f32 : DType::bf16) << comm::describe(record);
      ++found[is_float ? 1 : 0];
    }
    EXPECT_TRUE(found[0] > 0 && found[0] == found[1]);
  });
}

TEST(PrecisionBy, FrozenFloatWeightsKeepTheirValues) {
  const Result result = run<Mixed<Both>>(
      2, {.strategy = FullyShard<>{}}, {.unit_options = {.frozen = {"u1.norm", "u2.w"}, .precision = norms}});
  EXPECT_EQ(result.weights.at("u1.norm"), result.first.at("u1.norm"));
  EXPECT_NE(result.weights.at("u1.w"), result.first.at("u1.w"));
  const auto fits_bf16 = [](float x) { return static_cast<float>(bf16(x)) == x; };
  EXPECT_FALSE(std::ranges::all_of(result.weights.at("u1.norm"), fits_bf16));
  EXPECT_TRUE(std::ranges::all_of(result.weights.at("u2.w"), fits_bf16));
}

TEST(PrecisionBy, WeightsAreFilledSetAndRestoredUnderAnyOtherAssignment) {
  const TemporaryFolder folder;
  const Mixed<Both>::Settings settings{.unit_options = {.precision = norms},
                                       .statistics = {{.name = "mean", .shape = {2}}}};
  const FloatWeights others = PrecisionBy{on("u1|b", Fp32{}), otherwise(Bf16Mixed{})};
  const Result next = of_first_rank(2, [&](Comm& communicator) {
    Mixed<Both> sharded(communicator, units(), {}, settings);
    sharded.fill([](const Parameter&, std::int64_t begin, std::span<float> values) {
      for (float& value : values) value = 0.3f - 0.0123f * static_cast<float>(begin++ % 9);
    });
    const Values own{1.001f, 1.002f, 1.003f, 1.004f, 1.005f};
    sharded.set("u2.norm", own);
    EXPECT_EQ(net::weights(sharded).at("u2.norm"), own);
    sharded.statistic("mean")[0] = 3 + static_cast<float>(communicator.rank());
    train(sharded, norms);
    EXPECT_EQ(sharded.statistic("mean")[0], 3.5f);
    checkpoint::save(sharded, folder.path());
    return train(sharded, norms, 3);
  });
  const auto resume = [&]<class SharedT>(std::type_identity<SharedT>, int ranks,
                                         const typename SharedT::Strategy& strategy, const FloatWeights& floats) {
    on_ranks(ranks, [&](Comm& communicator) {
      typename SharedT::Settings other{.unit_options = {.precision = floats}, .statistics = settings.statistics};
      SharedT sharded(communicator, units(), strategy, other);
      checkpoint::restore(sharded, folder.path());
      EXPECT_EQ(net::weights(sharded), next.first);
      const Result found = train(sharded, floats, 3);
      if (floats == norms && ranks == 2) EXPECT_EQ(found, next);
    });
  };
  resume(std::type_identity<Mixed<Both>>{}, 2, {Zero1{}}, norms);
  resume(std::type_identity<Mixed<Both>>{}, 3, {Zero3{}}, others);
  resume(std::type_identity<Mixed<Both>>{}, 1, {Replicated{}}, {});
  resume(std::type_identity<Mixed<Bf16Mixed, FullyShard<>>>{}, 2, {}, {});
}

TEST(PrecisionBy, SmallFloatWeightsOfNeighbouringUnitsMayFormOneGroup) {
  Mixed<Both>::Settings settings{.micro_batches = 2, .unit_options = {.precision = norms}};
  const auto groups_and_calls = [&] {
    return of_first_rank(2, [&](Comm& communicator) {
      Mixed<Both> sharded(communicator, units(), {FullyShard<>{}}, settings);
      sharded.initialize(1);
      const Result result = train(sharded, norms);
      return std::tuple(sharded.module().names().groups, sharded.traffic().world.calls(), result);
    });
  };
  const auto [apart, calls, expected] = groups_and_calls();
  settings.unit_options.join_float_below = net::width - 1;
  EXPECT_EQ(std::get<0>(groups_and_calls()), apart);
  settings.unit_options.join_float_below = net::width;
  const auto [groups, fewer, found] = groups_and_calls();
  EXPECT_EQ(groups, (std::vector<std::string>{"u0", "u1", "u2", "u3", "u0, fp32", "u1 and u2, fp32", "u3, fp32"}));
  EXPECT_EQ(found, expected);
  EXPECT_EQ(calls - fewer, 3 * 2 * 3) << "3 steps of 2 micro-batches: two gathers and a reduction";
}

TEST(PrecisionBy, PatternsThatDoNotFitAreRefusedWithNames) {
  const auto refused = [](auto type, const FloatWeights& floats, const char* text) {
    on_ranks(2, [&](Comm& communicator) {
      const auto make = [&] {
        typename decltype(type)::type(communicator, units(), {}, {.unit_options = {.precision = floats}});
      };
      expect_input_error(error_of<InputError>(make), text);
    });
  };
  using Type = std::type_identity<Mixed<Both>>;
  const auto two = [](const char* a, const char* b) {
    return FloatWeights(PrecisionBy{on(a, Fp32{}), on(b, Fp32{}), otherwise(Bf16Mixed{})});
  };
  refused(std::type_identity<Mixed<Bf16Mixed, FullyShard<>>>{}, norms,
          "precision: u0, fp32 is to be float (UnitOptions::precision), and the stack's precision has one type for all");
  refused(Type{}, two("norm", "u1"), "precision: 'u1.norm' of u1 matches both 'norm' and 'u1'");
  refused(Type{}, two("norm", "gate"), "precision: the pattern 'gate' matches no tensor");
}

/// Both ranks have groups of the same shapes.
TEST(PrecisionBy, RanksWithOtherPatternsAreRefusedOnEveryRank) {
  on_ranks(3, [](Comm& communicator) {
    const FloatWeights biases = PrecisionBy{on("b", Fp32{}), otherwise(Bf16Mixed{})};
    const Mixed<Both>::Settings settings{.unit_options = {.precision = communicator.rank() == 1 ? biases : norms}};
    EXPECT_INPUT_ERROR(Mixed<Both>(communicator, units(), {}, settings),
                       "sharding: rank 1 has another schedule than rank 0");
  });
}

}  // namespace
}  // namespace fsdp::test
