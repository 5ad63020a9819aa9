// SPDX-License-Identifier: Apache-2.0
// User-defined networks whose tensors have different strategies train bit-identically to the plain loop, in which each
// tensor has the order of sums of its strategy, and send what each strategy sends for its tensors alone.
#include <array>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <support/errors.hpp>
#include <tessera/fsdp/sharding/per_unit.hpp>
#include "runs.hpp"

namespace fsdp::foreign {
namespace {

using plain::Reduce;

/// The tensors of a part by their names, and their strategy.
struct Part {
  RunTimeAny strategy;
  plain::Sums sums;
  std::vector<std::string> tensors = {};

  std::string pattern() const {
    std::string names;
    for (const std::string& tensor : tensors) names += (names.empty() ? "" : "|") + tensor;
    return names;
  }
  /// The units with this part's tensors alone.
  std::vector<Unit> units_of(const Network& network) const {
    std::vector<Unit> units = network.units;
    for (Unit& unit : units)
      std::erase_if(unit.parameters, [&](const auto& own) { return std::ranges::count(tensors, own.name) == 0; });
    return units;
  }
};

RunTimeAny strategy_of(const std::vector<Part>& parts) {
  RunTimeAny strategy = parts.back().strategy;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i)
    strategy.units.push_back(on(parts[i].pattern(), parts[i].strategy));
  return strategy;
}

/// One to four parts with all tensors of a network; the first has the frozen ones.
std::vector<Part> random_parts(std::minstd_rand& random, const Network& network, bool two_axes) {
  const HybridShard<RunTimeSharded> hybrid{.group = 2, .inner = {FullyShard<>{}}}, zero1{.group = 2, .inner = {Zero1{}}};
  const Reduce last = Reduce::last_micro_batch;
  std::vector<Part> kinds{{{FullyShard<>{}}, {}},
                          {{FullyShard<ReshardAfterForward::no>{}}, {}},
                          {{Zero3{}}, {}},
                          {{Zero3{.persistence_threshold = 8}}, {}},
                          {{Zero2{}}, {}},
                          {{Zero1{}}, {last}},
                          {{FullyShard<>{.reduce = ReduceGradients::last_micro_batch}}, {last}},
                          {{Replicated{}}, {last}}};
  if (two_axes)
    kinds = {{{hybrid}, {Reduce::every_micro_batch, 2}},
             {{zero1}, {last, 2}},
             {{FullyShard<ReshardAfterForward::to_group>{.group = 2}}, {}},
             kinds[0],
             kinds[7]};
  const std::array<buffer::AnyLayout, 4> layouts{buffer::PerParameter{}, buffer::Flat{}, buffer::Rows{},
                                                 buffer::Owned{}};
  std::vector<Part> parts;
  for (auto count = 1 + random() % 4; count > 0; --count) {
    Part part = kinds[random() % kinds.size()];
    if (const auto layout = random() % 5; layout < layouts.size()) part.strategy.other_layout = layouts[layout];
    parts.push_back(part);
    // The groups of parts with the same strategy would be one.
    if (calls_of(strategy_of(parts)).parts.back().same_as + 1 < parts.size()) parts.pop_back();
  }
  for (const Parameter& parameter : distinct_parameters(network.units)) {
    const bool first = parts.front().tensors.empty() || matches_any(network.unit_options.frozen, parameter.name);
    parts[first ? 0 : random() % parts.size()].tensors.push_back(parameter.name);
  }
  std::erase_if(parts, [](const Part& part) { return part.tensors.empty(); });
  return parts;
}

/// The collectives of a training pass that computes nothing, and the bytes of weights at rest.
struct Cost {
  comm::MeshTraffic traffic;
  std::int64_t weights = 0;

  void add(const Cost& other) {
    traffic.world += other.traffic.world;
    traffic.across += other.traffic.across;
    traffic.shard += other.traffic.shard;
    weights += other.weights;
  }
  friend bool operator==(const Cost&, const Cost&) = default;
};
Cost cost_of(Comm& communicator, const std::vector<Unit>& units, const RunTimeAny& strategy,
             const ShardedSettings<>& settings) {
  Fsdp2 sharded(communicator, units, strategy, settings);
  sharded.initialize(seed);
  const comm::MeshTraffic before = sharded.traffic();
  auto pass = sharded.train();
  while (pass.next()) auto use = pass.enter();
  pass.finish();
  const auto& bytes = sharded.held().bytes;
  return {sharded.traffic() - before, bytes[static_cast<std::size_t>(device::MemoryKind::weights)]};
}

void expect_sum_of_parts(const Network& network, const Request& request, const std::vector<Part>& parts) {
  on_ranks(request.ranks, [&](Comm& communicator) {
    ShardedSettings<> settings = settings_for(network, request.micro_batches.front());
    const Cost whole = cost_of(communicator, network.units, strategy_of(parts), settings);
    Cost sum;
    for (const Part& part : parts) {
      if (&part != &parts.front()) settings.unit_options.frozen.clear();
      sum.add(cost_of(communicator, part.units_of(network), part.strategy, settings));
    }
    EXPECT_EQ(whole, sum) << "rank " << communicator.rank();
  });
}

TEST(PerUnit, OfRandomTensorsIsBitIdenticalToThePlainLoopAndCostsTheSumOfItsParts) {
  std::minstd_rand random(3);
  for (int trial = 0; trial < (sweeps_whole() ? 600 : 24); ++trial) {
    const Network network = trial % 2 == 0 ? tied_network() : unet_network();
    const bool two_axes = trial % 3 == 0;
    const std::vector<Part> parts = random_parts(random, network, two_axes);
    Request request{.ranks = two_axes ? 4 : 1 + trial % 4,
                    .micro_batches = std::vector(4, 1 + trial / 4 % 2),
                    .strategy = strategy_of(parts)};
    for (const Part& part : parts)
      for (const std::string& tensor : part.tensors) request.sums[tensor] = part.sums;
    request.clip = clip_of(network, request);
    SCOPED_TRACE(message("trial ", trial, ", ", network.name, ", ", request.ranks, " ranks, ",
                         detail::text_of_parts(calls_of(strategy_of(parts)).parts)));
    const Outcome found = train_sharded(network, request), expected = train_plain<float>(network, request, {});
    expect_same(found, expected);
    expect_clipping(found, request.clip);
    for (std::size_t step = 0; step < found.norms.size(); ++step)
      EXPECT_NEAR(found.norms[step], expected.norms[step], 1e-9 * expected.norms[step]);
    expect_sum_of_parts(network, request, parts);
  }
}

/// Trains under a strategy of any type and expects the bits of the plain loop.
template <class Strategy>
void expect_plain(const Network& network, Request request, const Strategy& strategy) {
  request.clip = clip_of(network, request);
  SCOPED_TRACE(message(policy_text(strategy), ", ", request.ranks, " ranks"));
  const Outcome expected = train_plain<float>(network, request, {});
  on_ranks(request.ranks, [&](Comm& communicator) {
    expect_same(train_on<Fp32>(communicator, network, request, strategy), expected);
  });
}

TEST(PerUnit, IsATypeWithDefaultsAndOneOptimizerPlacementOrSeveral) {
  const plain::Sums last{Reduce::last_micro_batch}, in_groups{Reduce::last_micro_batch, 2}, each{};
  const Network network = tied_network();
  Request request{.ranks = 3, .micro_batches = {2, 2, 2, 2}};
  request.sums = {{"reader", each}, {"cell.w", last}, {"cell.b", last}, {"table", last}, {"bias", each},
                  {"scale", each}, {"unused", each}};
  const PerUnit one{on("cell", Zero1{}), on("table", Replicated{}), otherwise(FullyShard<>{})};
  expect_plain(network, request, one);
  expect_plain(network, request, PerUnit{on("cell", Zero1{}), on("table", Zero1{}), otherwise(FullyShard<>{})});

  request.ranks = 4;
  for (const char* const tensor : {"cell.w", "cell.b", "table"}) request.sums[tensor] = in_groups;
  const PerUnit several{on("cell", HybridShard<Zero1, OptimizerAcross::sharded>{.group = 2}),
                        on("table", HybridShard<Zero1>{.group = 2}), otherwise(FullyShard<>{})};
  expect_plain(network, request, several);
  expect_plain(network, request, Offload<std::remove_const_t<decltype(several)>>{several});
}

TEST(PerUnit, InPiecesIsBitIdenticalOnAnyNumberOfRanks) {
  const Network network = unet_network();
  Request request{.ranks = 4, .clip = 1e30};
  const Outcome expected = train_plain<float>(network, request, {});
  using Strategy = PerUnit<Zero1, Zero3, FullyShard<ReshardAfterForward::no>>;
  const Reproducible<Strategy> strategy{Strategy{on("enc1", Zero1{}), on("head", Zero3{}), otherwise(FullyShard<ReshardAfterForward::no>{})}, 4};
  for (request.ranks = 1; request.ranks <= 5; ++request.ranks)
    on_ranks(request.ranks, [&](Comm& communicator) {
      expect_same(train_on<Fp32>(communicator, network, request, strategy), expected);
    });
}

}  // namespace
}  // namespace fsdp::foreign
