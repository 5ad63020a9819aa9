// SPDX-License-Identifier: Apache-2.0
#include "runs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

#include <gtest/gtest.h>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/testing/report.hpp>

namespace fsdp::foreign {
namespace {

template <class Precision, class Strategy>
Outcome train_by(const Network& network, const Request& request, const Strategy& strategy) {
  Outcome outcome;
  on_ranks(request.ranks, [&](Comm& communicator) {
    const Outcome found = train_on<Precision>(communicator, network, request, strategy);
    if (communicator.rank() == 0) outcome = found;
  });
  return outcome;
}

Shape shape_of(const std::vector<std::int64_t>& extents) {
  Shape shape;
  for (const std::int64_t extent : extents) shape.extents[static_cast<std::size_t>(shape.rank++)] = extent;
  return shape;
}

/// A use of the plain loop.
template <class U>
class HeldPlainUse : public HeldUse {
 public:
  template <class Enter>
  explicit HeldPlainUse(const Enter& enter) : use_(enter()) {}
  Tensor<const float> weight(std::size_t index) override {
    const auto view = use_.weight(index);
    return {view.data(), shape_of(*view.shape)};
  }
  GradientView<float> gradient(std::size_t index) override {
    const auto gradient = use_.gradient(index);
    return {{gradient.wanted() ? gradient.tensor.data() : nullptr, shape_of(*gradient.tensor.shape)}, gradient.written};
  }
  void done() override {}

 private:
  U use_;
};

/// Returns how the library's AdamW rounds multiply-adds; this depends on the processor and the compiler.
plain::Rounding rounding_of_library() {
  constexpr Eigen::Index count = 100;
  using Values = Eigen::VectorXf;
  const Values weight = Values::LinSpaced(count, -1, 1), first = weight.array().sin(), sum = weight.array().cos();
  const Values second = first.array().square();
  const device::StepDecision decision{.taken = 3, .lr = lr, .gradient_scale = 0.817f};
  Values main = weight, mean = first, squares = second;
  device::Ledger ledger;
  device::Cpu::Arena arena(ledger, 0);
  device::Cpu::Stream stream(arena, 1);
  device::enqueue(stream, device::AdamWStep<float>{.rules = {.weight_decay = 0.01f},
                                                   .step = {&decision, {1}},
                                                   .main = Tensor<float>(main.data(), {count}),
                                                   .first_moment = {mean.data(), {count}},
                                                   .second_moment = {squares.data(), {count}},
                                                   .gradient = {sum.data(), {count}},
                                                   .model = {}});
  for (const auto rounding : {plain::Rounding::each, plain::Rounding::fused}) {
    const plain::AdamW<float> by_hand({.lr = lr, .rounding = rounding}, 3, 0.817f, true);
    bool same = true;
    for (Eigen::Index i = 0; i < count; ++i) {
      float w = weight[i], m = first[i], v = second[i];
      by_hand.step(w, m, v, sum[i]);
      same = same && w == main[i] && m == mean[i] && v == squares[i];
    }
    if (same) return rounding;
  }
  ADD_FAILURE() << "AdamW without the library has other bits than the library's, fused or not";
  return plain::Rounding::each;
}

}  // namespace

bool sweeps_whole() {
  const char* const sweep = std::getenv("TESSERA_SWEEP");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return sweep != nullptr && std::string_view(sweep) == "whole";
}

std::vector<Case> cases_of_one_axis() {
  using plain::Reduce;
  return {{RunTimeAny{FullyShard<>{}}},
          {RunTimeAny{FullyShard<ReshardAfterForward::no>{.prefetch_depth = 2}}},
          {RunTimeAny{Zero3{.persistence_threshold = 8}}},
          {RunTimeAny{Zero2{}}},
          {RunTimeAny{Zero1{}}, {Reduce::last_micro_batch}},
          {RunTimeAny{FullyShard<>{.reduce = ReduceGradients::last_micro_batch}}, {Reduce::last_micro_batch}},
          {RunTimeAny{Replicated{}}, {Reduce::last_micro_batch}}};
}

std::vector<Case> cases_of_two_axes() {
  using plain::Reduce;
  const HybridShard<RunTimeSharded> hybrid{.group = 2, .inner = {FullyShard<>{}}};
  const HybridShard<RunTimeSharded> zero1{.group = 2, .inner = {Zero1{}}};
  return {{RunTimeAny{hybrid}, {Reduce::every_micro_batch, 2}},
          {RunTimeAny{zero1}, {Reduce::last_micro_batch, 2}},
          {RunTimeAny{FullyShard<ReshardAfterForward::to_group>{.group = 2}}},
          {RunTimeHybridFull{.group = 2, .inner = {Zero3{}}}, {Reduce::every_micro_batch, 2}}};
}

std::string text_of(const AnyStrategy& strategy) {
  return std::visit([](const auto& held) { return policy_text(held); }, strategy);
}

ShardedSettings<> settings_for(const Network& network, int micro_batches, double clip) {
  return {.orders = {network.order},
          .micro_batches = micro_batches,
          .optimizer = {.weight_decay = 0.01},
          .rules = {.clip = clip},
          .unit_options = network.unit_options};
}

Outcome train_sharded(const Network& network, const Request& request) {
  return std::visit(
      [&]<class Strategy>(const Strategy& strategy) {
        if constexpr (std::is_same_v<Strategy, RunTimeAny>)
          if (request.precision == In::bf16) return train_by<Bf16Mixed>(network, request, strategy);
        require<LogicError>(request.precision == In::fp32, "no test needs bf16 under ", policy_text(strategy));
        return train_by<Fp32>(network, request, strategy);
      },
      request.strategy);
}

template <class S>
Outcome train_plain(const Network& network, const Request& request, const plain::Sums& sums) {
  std::vector<plain::Parameter> parameters;
  std::vector<std::vector<int>> units;
  on_ranks(1, [&](Comm& communicator) {
    Fsdp2 sharded(communicator, network.units, {}, settings_for(network, 1));
    sharded.initialize(seed);
    auto values = whole_weights(sharded);
    for (const Parameter& parameter : distinct_parameters(network.units)) {
      const auto& extents = parameter.shape.extents;
      parameters.push_back({.name = parameter.name,
                            .shape = {extents.begin(), extents.begin() + parameter.shape.rank},
                            .decays = parameter.decays,
                            .trained = !matches_any(network.unit_options.frozen, parameter.name),
                            .values = values.at(parameter.name),
                            .sums = request.sums.empty() ? sums : request.sums.at(parameter.name)});
    }
  });
  for (const Unit& unit : network.units) {
    std::vector<int>& numbers = units.emplace_back();
    for (const Parameter& parameter : unit.parameters)
      numbers.push_back(static_cast<int>(std::ranges::find(parameters, parameter.name, &plain::Parameter::name) -
                                         parameters.begin()));
  }
  static const plain::Rounding rounding = rounding_of_library();
  plain::Loop<S> loop(parameters, units, {.ranks = request.ranks, .clip = request.clip, .rounding = rounding});
  Outcome outcome;
  for (const int count : request.micro_batches) {
    const int step = static_cast<int>(std::ssize(outcome.losses));
    outcome.losses.push_back(loop.step(count, lr_of(step), [&](auto& pass, int piece) {
      if constexpr (std::is_same_v<S, double>) {
        return network.compute_in_double(pass, step, piece, request.ranks * count);
      } else {
        AnyPass any = any_pass<HeldPlainUse>(pass);
        return network.compute(any, step, piece, request.ranks * count);
      }
    }));
    outcome.norms.push_back(loop.norm());
  }
  for (const auto& [i, parameter] : ranges::views::enumerate(parameters)) {
    const std::vector<double> weights = loop.weights(i);
    outcome.weights[parameter.name] = {weights.begin(), weights.end()};
  }
  return outcome;
}
template Outcome train_plain<float>(const Network&, const Request&, const plain::Sums&);
template Outcome train_plain<double>(const Network&, const Request&, const plain::Sums&);

void expect_same(const Outcome& found, const Outcome& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  ASSERT_EQ(found.weights.size(), expected.weights.size());
  for (const auto& [name, weights] : expected.weights)
    testing::expect_values("weights have the bits of the loop without the library", "after all steps", name,
                           found.weights.at(name), weights);
}

double clip_of(const Network& network, Request request) {
  request.clip = std::numeric_limits<double>::max();
  const Outcome outcome = train_plain<float>(network, request, plain::Reduce::every_micro_batch);
  const auto [least, most] = std::ranges::minmax(outcome.norms);
  return (least + most) / 2;
}

void expect_clipping(const Outcome& found, double clip) {
  const auto [least, most] = std::ranges::minmax(found.norms);
  EXPECT_TRUE(least < clip && clip < most) << "norms from " << least << " to " << most;
}

double difference(const Outcome& found, const Outcome& expected) {
  double largest = 0;
  EXPECT_EQ(found.losses.size(), expected.losses.size());
  for (const auto& [mine, other] : ranges::views::zip(found.losses, expected.losses))
    largest = std::max(largest, std::abs(mine - other) / std::abs(other));
  double squares = 0, size = 0;
  for (const auto& [name, weights] : expected.weights) {
    EXPECT_EQ(found.weights.at(name).size(), weights.size()) << name;
    for (const auto& [mine, other] : ranges::views::zip(found.weights.at(name), weights)) {
      squares += std::pow(static_cast<double>(mine) - static_cast<double>(other), 2);
      size += std::pow(static_cast<double>(other), 2);
    }
  }
  return std::max(largest, std::sqrt(squares / size));
}

}  // namespace fsdp::foreign
