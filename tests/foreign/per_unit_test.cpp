// SPDX-License-Identifier: Apache-2.0
// User-defined networks whose tensors have different strategies train bit-identically to the plain loop, in which each
// tensor has the order of sums of its strategy, and send what each strategy sends for its tensors alone.
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/sharding/per_unit.hpp>
#include "runs.hpp"

namespace fsdp::foreign {
namespace {

using plain::Reduce;
using Group = HybridShard<RunTimeSharded>;
constexpr plain::Sums last{Reduce::last_micro_batch}, last_in_groups{Reduce::last_micro_batch, 2};

/// A strategy and the names of its tensors.
struct Part {
  RunTimeAny strategy;
  plain::Sums sums = {};
  std::vector<std::string> tensors = {};
};
const std::vector<Part> on_one_axis{{{FullyShard<>{}}},
                                    {{FullyShard<ReshardAfterForward::no>{}}},
                                    {{Zero3{}}},
                                    {{Zero3{.persistence_threshold = 8}}},
                                    {{Zero2{}}},
                                    {{Zero1{}}, last},
                                    {{FullyShard<>{.reduce = ReduceGradients::last_micro_batch}}, last},
                                    {{Replicated{}}, last}},
    on_two_axes{{{Group{.group = 2, .inner = {FullyShard<>{}}}}, {Reduce::every_micro_batch, 2}},
                {{Group{.group = 2, .inner = {Zero1{}}}}, last_in_groups},
                {{FullyShard<ReshardAfterForward::to_group>{.group = 2}}},
                {{FullyShard<>{}}},
                {{Replicated{}}, last}};

RunTimeAny strategy_of(const std::vector<Part>& parts) {
  RunTimeAny strategy = parts.back().strategy;
  for (auto part = parts.begin(); part + 1 < parts.end(); ++part) {
    std::string names;
    for (const std::string& tensor : part->tensors) names += (names.empty() ? "" : "|") + tensor;
    strategy.units.push_back(part_of(on(names, part->strategy)));
  }
  return strategy;
}

/// One to four parts with all tensors of a network; the first has the frozen ones.
std::vector<Part> random_parts(std::minstd_rand& random, const Network& network, const std::vector<Part>& kinds) {
  const buffer::AnyLayout layouts[] = {buffer::PerParameter{}, buffer::Flat{}, buffer::Rows{}, buffer::Owned{},
                                       buffer::Blocks{.elements = 7}};
  std::vector<Part> parts;
  for (auto count = 1 + random() % 4; count > 0; --count) {
    parts.push_back(kinds[random() % kinds.size()]);
    if (const auto layout = random() % 5; layout < 4) parts.back().strategy.other_layout = layouts[layout];
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

/// The collectives of a training pass that computes nothing, by axis, and the bytes of weights at rest.
struct Cost {
  comm::Traffic world, across, shard;
  std::int64_t weights = 0;
  friend bool operator==(const Cost&, const Cost&) = default;
};
void add_cost(Cost& sum, Comm& communicator, const std::vector<Unit>& units, const RunTimeAny& strategy,
              const ShardedSettings<>& settings) {
  Fsdp2 sharded(communicator, units, strategy, settings);
  sharded.initialize(seed);
  const comm::MeshTraffic before = sharded.traffic();
  auto pass = sharded.train();
  while (pass.next()) auto use = pass.enter();
  pass.finish();
  const comm::MeshTraffic made = sharded.traffic() - before;
  sum.world += made.world;
  sum.across += made.across;
  sum.shard += made.shard;
  sum.weights += sharded.held().bytes[static_cast<std::size_t>(device::MemoryKind::weights)];
}

void expect_sum_of_parts(const Network& network, const Request& request, const std::vector<Part>& parts) {
  on_ranks(request.ranks, [&](Comm& communicator) {
    ShardedSettings<> settings = settings_for(network, request.micro_batches.front());
    Cost whole, sum;
    add_cost(whole, communicator, network.units, strategy_of(parts), settings);
    for (const Part& part : parts) {
      std::vector<Unit> units = network.units;
      for (Unit& unit : units)
        std::erase_if(unit.parameters,
                      [&](const auto& own) { return std::ranges::count(part.tensors, own.name) == 0; });
      add_cost(sum, communicator, units, part.strategy, settings);
      settings.unit_options.frozen.clear();
    }
    EXPECT_EQ(whole, sum) << "rank " << communicator.rank();
  });
}

TEST(PerUnit, OfRandomTensorsIsBitIdenticalToThePlainLoopAndCostsTheSumOfItsParts) {
  std::minstd_rand random(3);
  for (int trial = 0; trial < (sweeps_whole() ? 600 : 24); ++trial) {
    const Network network = trial % 2 == 0 ? tied_network() : unet_network();
    const bool two_axes = trial % 3 == 0;
    const std::vector<Part> parts = random_parts(random, network, two_axes ? on_two_axes : on_one_axis);
    Request request{.ranks = two_axes ? 4 : 1 + trial % 4,
                    .micro_batches = std::vector(4, 1 + trial / 4 % 2),
                    .strategy = strategy_of(parts)};
    for (const Part& part : parts)
      for (const std::string& tensor : part.tensors) request.sums[tensor] = part.sums;
    request.clip = clip_of(network, request);
    SCOPED_TRACE(
        message("trial ", trial, ", ", network.name, ", ", request.ranks, " ranks, ", policy_text(strategy_of(parts))));
    const Outcome found = train_sharded(network, request), expected = train_plain<float>(network, request, {});
    expect_same(found, expected);
    expect_clipping(found, request.clip);
    for (std::size_t step = 0; step < 4; ++step)
      EXPECT_NEAR(found.norms[step], expected.norms[step], 1e-9 * expected.norms[step]);
    expect_sum_of_parts(network, request, parts);
  }
}

/// Trains the network of tied weights under a strategy of any type, and expects the bits of the plain loop.
template <class Strategy>
void expect_plain(int ranks, const plain::Sums& of_cell_and_table, const Strategy& strategy) {
  SCOPED_TRACE(policy_text(strategy));
  const Network network = tied_network();
  Request request{.ranks = ranks, .micro_batches = {2, 2, 2, 2}};
  for (const char* const name : {"reader", "bias", "scale", "unused"}) request.sums[name] = {};
  for (const char* const name : {"cell.w", "cell.b", "table"}) request.sums[name] = of_cell_and_table;
  request.clip = clip_of(network, request);
  const Outcome expected = train_plain<float>(network, request, {});
  on_ranks(ranks, [&](Comm& communicator) {
    expect_same(train_on<Fp32>(communicator, network, request, strategy), expected);
  });
}

TEST(PerUnit, IsATypeWithOnePlacementOfTheOptimizerOrSeveral) {
  const PerUnit one{on("cell", Zero1{}), on("table", Replicated{}), otherwise(FullyShard<>{})};
  expect_plain(3, last, one);
  using Several = PerUnit<HybridShard<Zero1, OptimizerAcross::sharded>, HybridShard<Zero1>, FullyShard<>>;
  const Several several{on("cell", HybridShard<Zero1, OptimizerAcross::sharded>{.group = 2}),
                        on("table", HybridShard<Zero1>{.group = 2}), otherwise(FullyShard<>{})};
  expect_plain(4, last_in_groups, several);
  expect_plain(4, last_in_groups, Offload<Several>{several});
}

}  // namespace
}  // namespace fsdp::foreign
