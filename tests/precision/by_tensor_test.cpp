// SPDX-License-Identifier: Apache-2.0
// A precision for each tensor: user-defined code with float biases next to bf16 matrices.
#include <tessera/fsdp/precision/by_tensor.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
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

template <class Precision, class Strategy = RunTimeAny>
using Mixed = Sharded<NetStack<Strategy, Precision>>;
using Settings = ShardedSettings<>;
template <class V>
struct Fields {
  V weight, bias;
};
const FloatWeights biases = PrecisionBy{on("b", Fp32{}), otherwise(Bf16Mixed{})};
const std::vector<Unit> four = net::units(4);

/// The weights of a use in float. Expects that each has the type that `floats` specify, and the main weights' values.
template <class UseT>
std::array<Values, 2> weights_of(const UseT& use, const FloatWeights& floats, const Whole& main) {
  std::array<typename UseT::View, 2> views;
  use.weights(views);
  std::array<Values, 2> list;
  for (std::size_t i = 0; i < 2; ++i)
    with_view(views[i], [&]<class T>(const Tensor<const T>& weight) {
      const Unit& unit = four[static_cast<std::size_t>(use.task().index)];
      const Parameter& parameter = unit.parameters[i];
      EXPECT_EQ((std::is_same_v<T, float>), floats.contains(unit.name, parameter)) << parameter.name;
      Values rounded = main.at(parameter.name);
      for (float& value : rounded) value = static_cast<float>(T(value));
      list[i].assign(weight.data(), weight.data() + weight.numel());
      EXPECT_EQ(list[i], rounded) << parameter.name;
    });
  return list;
}

struct Result {
  std::vector<double> losses;
  Whole first, last;  ///< weights before and after the steps
  friend bool operator==(const Result&, const Result&) = default;
};

/// Makes three steps of two micro-batches.
template <class SharedT>
Result train(SharedT& sharded, int first_step = 0) {
  const FloatWeights& floats = sharded.module().settings().passes.unit_options.precision;
  Result result{.losses = {}, .first = net::weights(sharded), .last = {}};
  for (int step = first_step; step < first_step + 3; ++step) {
    const Whole main = net::weights(sharded);
    double loss = 0;
    auto pass = sharded.train();
    for (int m = 0; m < 2; ++m) {
      const net::Place place{.rank = sharded.module().communicator().rank(), .micro_batch = m, .step = step};
      std::vector<Values> saved{net::inputs(place)};
      for (int u = 0; u < 4; ++u) {
        const auto use = pass.forward(u);
        const auto [w, b] = weights_of(use, floats, main);
        saved.push_back(
            net::forward<float>({w.data(), {net::width, net::width}}, {b.data(), {net::width}}, saved.back()));
      }
      Values x = saved.back();
      loss += net::error(x, net::targets(place));
      for (int u = 3; u >= 0; --u) {
        const auto use = pass.backward(u);
        const auto [w, b] = weights_of(use, floats, main);
        x = net::backward<float>({w.data(), {net::width, net::width}}, use.gradient(0), use.gradient(1),
                                 saved[static_cast<std::size_t>(u)], x);
      }
    }
    pass.finish();
    result.losses.push_back(sharded.step(loss, {.lr = 1e-2}).loss);
  }
  result.last = net::weights(sharded);
  EXPECT_EQ(sharded.planned(), sharded.held());
  return result;
}

Settings settings_of(UnitOptions options) {
  return {.micro_batches = 2, .unit_options = std::move(options), .statistics = {{.name = "mean", .shape = {1}}}};
}
Result run(int ranks, const RunTimeAny& strategy, const UnitOptions& options = {.precision = biases}) {
  return of_first_rank(ranks, [&](Comm& communicator) {
    Mixed<Both> sharded(communicator, four, strategy, settings_of(options));
    sharded.initialize(1);
    return train(sharded);
  });
}

TEST(PrecisionBy, EachTensorHasItsTypeUnderAnyAssignmentOfStrategies) {
  RunTimeAny parts{.strategy = FullyShard<>{}};
  parts.units = {part_of(on("unit1.w", RunTimeAny{Zero2{}})), part_of(on("unit2.b", RunTimeAny{Zero3{}}))};
  for (const int ranks : {1, 2, 3}) {
    const Result expected = run(ranks, {.strategy = FullyShard<>{}}), last = run(ranks, {.strategy = Replicated{}});
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    EXPECT_EQ(run(ranks, parts), expected);
    EXPECT_EQ(run(ranks, {.strategy = Zero3{.persistence_threshold = net::width}}), expected);
    EXPECT_EQ(run(ranks, {.strategy = Zero2{}, .other_layout = buffer::Owned{}}), expected);
    EXPECT_EQ(run(ranks, {.strategy = Zero1{}}), last);
  }
}

TEST(PrecisionBy, AWeightOfAnotherTypeIsALogicErrorThatNamesIt) {
  on_ranks(2, [](Comm& communicator) {
    Mixed<Both> sharded(communicator, four, {}, settings_of({.precision = biases}));
    sharded.initialize(1);
    auto pass = sharded.train();
    const auto use = pass.forward(0);
    EXPECT_EQ(use.weight<float>("unit0.b").numel() + use.weight("unit0.w").numel(), 30);
    EXPECT_EQ(
        error_of<LogicError>([&] { (void)use.weight("unit0.b"); }),
        "use: the weight 'unit0.b' is f32 (UnitOptions::precision), and bf16 was requested; take weight<float>, or "
        "with_view");
    expect_parts(
        error_of<LogicError>([&] { (void)use.weight<float>("unit0.w"); }),
        {"'unit0.w' is bf16 (UnitOptions::precision), and f32 was requested; take weight<Compute>, or with_view"});
    const auto fields = use.weights<Fields>();
    const Tensor<const bf16> matrix = fields.weight;
    const Tensor<const float> bias = fields.bias;
    EXPECT_EQ(matrix.numel() + bias.numel(), 30);
    EXPECT_EQ(
        error_of<LogicError>([&] { (void)Tensor<const bf16>(fields.bias); }),
        "use: a weight is f32 (UnitOptions::precision), and bf16 was requested; take weight<float>, or with_view");
    expect_parts(error_of<LogicError>([&] { (void)Tensor<const float>(fields.weight); }),
                 {"a weight is bf16 (UnitOptions::precision), and f32 was requested"});
  });
}

TEST(PrecisionBy, FloatWeightsReduceInFloatOverABf16WireAndTheOptimizerMayBeOffloaded) {
  Comm::run(2, {.record = true}, [&](Comm& communicator) {
    Mixed<PrecisionBy<Fp32, Bf16Wire<Bf16Mixed>>, Offload<FullyShard<>>> sharded(communicator, four, {},
                                                                                 settings_of({.precision = biases}));
    sharded.initialize(1);
    train(sharded);
    std::array<int, 2> found{};
    for (const comm::Record& record : communicator.monitor().records) {
      if (record.label.what != "gradients") continue;
      const auto& group = sharded.module().names().groups[static_cast<std::size_t>(record.label.unit)];
      EXPECT_EQ(record.dtype, group.ends_with(", fp32") ? DType::f32 : DType::bf16) << comm::describe(record);
      ++found[group.ends_with(", fp32") ? 1 : 0];
    }
    EXPECT_TRUE(found[0] > 0 && found[0] == found[1]);
  });
}

TEST(PrecisionBy, FrozenWeightsKeepTheirValuesInTheirType) {
  const Result result = run(2, {.strategy = FullyShard<>{}}, {.frozen = {"unit1.b", "unit2.w"}, .precision = biases});
  for (const char* const name : {"unit1.b", "unit2.w"}) EXPECT_EQ(result.last.at(name), result.first.at(name));
  EXPECT_NE(result.last.at("unit1.w"), result.first.at("unit1.w"));
  const auto fits_bf16 = [](float x) { return static_cast<float>(bf16(x)) == x; };
  EXPECT_FALSE(std::ranges::all_of(result.last.at("unit1.b"), fits_bf16));
}

TEST(PrecisionBy, WeightsAreFilledSetAndRestoredUnderAnyOtherAssignment) {
  const TemporaryFolder folder;
  const Result next = of_first_rank(2, [&](Comm& communicator) {
    Mixed<Both> sharded(communicator, four, {}, settings_of({.precision = biases}));
    sharded.fill([](const Parameter&, std::int64_t begin, std::span<float> values) {
      for (float& value : values) value = 0.3f - 0.0123f * static_cast<float>(begin++ % 9);
    });
    const Values own{1.001f, 1.002f, 1.003f, 1.004f, 1.005f};
    sharded.set("unit2.b", own);
    sharded.statistic("mean")[0] = 3 + static_cast<float>(communicator.rank());
    EXPECT_EQ(train(sharded).first.at("unit2.b"), own);
    EXPECT_EQ(sharded.statistic("mean")[0], 3.5f);
    checkpoint::save(sharded, folder.path());
    return train(sharded, 3);
  });
  const auto resume = [&]<class Precision, class Strategy>(Precision, int ranks, const Strategy& strategy,
                                                           const FloatWeights& floats) {
    on_ranks(ranks, [&](Comm& communicator) {
      Mixed<Precision, Strategy> sharded(communicator, four, strategy, settings_of({.precision = floats}));
      checkpoint::restore(sharded, folder.path());
      const Result found = train(sharded, 3);
      EXPECT_EQ(found.first, next.first);
      if (floats == biases && ranks == 2) {
        EXPECT_EQ(found, next);
      }
    });
  };
  resume(Both{}, 2, RunTimeAny{Zero2{}}, biases);
  resume(Both{}, 3, RunTimeAny{Zero3{}}, PrecisionBy{on("unit1|unit2.w", Fp32{}), otherwise(Bf16Mixed{})});
  resume(Both{}, 1, RunTimeAny{Replicated{}}, {});
  resume(Bf16Mixed{}, 2, FullyShard<>{}, {});
}

TEST(PrecisionBy, SmallFloatWeightsOfNeighbouringUnitsMayFormOneGroup) {
  const auto with = [&](std::int64_t elements) {
    return of_first_rank(2, [&](Comm& communicator) {
      Mixed<Both> sharded(communicator, four, {FullyShard<>{}},
                          settings_of({.precision = biases, .join_float_below = elements}));
      sharded.initialize(1);
      const Result result = train(sharded);
      return std::tuple(result, sharded.module().names().groups, sharded.traffic().world.calls());
    });
  };
  EXPECT_EQ(with(net::width - 1), with(0));
  const auto [found, groups, calls] = with(net::width);
  EXPECT_EQ(found, std::get<0>(with(0)));
  EXPECT_EQ(groups, (std::vector<std::string>{"unit0", "unit1", "unit2", "unit3", "unit0, fp32",
                                              "unit1 and unit2, fp32", "unit3, fp32"}));
  // Two gathers and a reduction in each micro-batch, and five reads of all weights.
  EXPECT_EQ(std::get<2>(with(0)) - calls, 3 * 2 * 3 + 5);
}

TEST(PrecisionBy, PatternsThatDoNotFitAreRefusedOnEveryRank) {
  const auto refused = [](auto precision, const FloatWeights& floats, const char* text) {
    using Strategy = std::conditional_t<has_float_weights<decltype(precision)>, RunTimeAny, FullyShard<>>;
    on_ranks(3, [&](Comm& communicator) {
      const Settings settings = settings_of({.precision = communicator.rank() == 1 ? floats : biases});
      using SharedT = Mixed<decltype(precision), Strategy>;
      EXPECT_INPUT_ERROR(SharedT(communicator, four, {}, settings), text);
    });
  };
  const auto floats = [](auto... names) { return PrecisionBy{on(names, Fp32{})..., otherwise(Bf16Mixed{})}; };
  refused(Bf16Mixed{}, biases, "precision: unit0, fp32 is to be float (UnitOptions::precision), and the stack's");
  refused(Both{}, floats("b", "unit1"), "precision: 'unit1.b' of unit1 matches both 'b' and 'unit1'");
  refused(Both{}, floats("b", "gate"), "precision: the pattern 'gate' matches no tensor");
  refused(Both{}, floats("unit0.b", "unit1.b", "unit2.b", "unit3.w"), "rank 1 has another schedule than rank 0");
}

}  // namespace
}  // namespace fsdp::test
