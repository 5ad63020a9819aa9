// SPDX-License-Identifier: Apache-2.0
// Plans for ranks that own whole tensors or blocks of tensors and therefore differ.
#include <algorithm>
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include <support/stacks/planned_llama.hpp>
#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/plan/dry_run_parts.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>

namespace fsdp::plan {
namespace {

using Sharding = WithLayout<FullyShard<>, buffer::AnyLayout>;
using Model = Llama<Stack<Sharding, comm::Simulated<>, Bf16Mixed, tiling::Untiled>>;
using Module = ShardedModel<Model>;

const LlamaConfig small = {.vocab_size = 320,
                           .hidden_size = 64,
                           .intermediate_size = 192,
                           .layers = 2,
                           .heads = 4,
                           .kv_heads = 1,
                           .head_dim = 16};

Plan plan_of(const UnitOptions& units, int ranks, int rank, std::int64_t length = 16,
             const optim::RunTimeOptimizer& optimizer = {}, const buffer::AnyLayout& layout = buffer::Owned{}) {
  return test::dry_run({.config = small,
                        .units = units,
                        .strategy = RunTimeAny{.strategy = FullyShard<>{}, .other_layout = layout},
                        .optimizer = optimizer},
                       {.ranks = ranks,
                        .rank = rank,
                        .shape = {.size = {.sequence_length = length}, .step_work = optim::step_work(optimizer)}});
}

/// Returns peak_of(rank) for each rank.
template <class Peak>
std::vector<std::int64_t> peaks_of(int ranks, const Peak& peak_of) {
  std::vector<std::int64_t> peaks(static_cast<std::size_t>(ranks));
  std::ranges::generate(peaks, [&, rank = 0]() mutable { return peak_of(rank++); });
  return peaks;
}

/// The rank with the largest peak depends on both the trained and the frozen tensors.
TEST(MostLoaded, IsTheRankWithTheLargestPeakMemory) {
  for (const UnitOptions& units : {UnitOptions{}, {.frozen = {"*embed*", "*down_proj*"}}})
    for (const buffer::AnyLayout& layout : {buffer::AnyLayout(buffer::Owned{}), {buffer::Blocks{}}})
      for (const int ranks : {1, 2, 3, 7}) {
        const auto plan = [&](int rank) { return plan_of(units, ranks, rank, 16, {}, layout); };
        const std::vector<std::int64_t> peaks = peaks_of(ranks, [&](int rank) { return plan(rank).peak_bytes(); });
        const Plan most = plan(most_loaded);
        EXPECT_EQ(most.peak_bytes(), *std::ranges::max_element(peaks)) << ranks << " ranks";
        EXPECT_EQ(most.peak_bytes(), peaks[static_cast<std::size_t>(most.rank)]);
        EXPECT_EQ(most.same_on_all_ranks, std::ranges::count(peaks, peaks.front()) == ranks);
      }
}

/// Muon's scratch is that of the largest matrix of a rank, which is not necessarily the rank that stores the most.
TEST(MostLoaded, IsCorrectIfRanksStepWholeMatricesWithMuon) {
  for (const optim::Muon& muon : {optim::Muon{}, optim::Muon{.per_head = true}})
    for (const buffer::AnyLayout& layout : {buffer::AnyLayout(buffer::Owned{}), {buffer::Blocks{}}})
      for (const int ranks : {2, 5, 40}) {
        const auto peak_of = [&](int rank) { return plan_of({}, ranks, rank, 1, {muon}, layout).peak_bytes(); };
        const std::vector<std::int64_t> peaks = peaks_of(ranks, peak_of);
        EXPECT_EQ(peak_of(most_loaded), *std::ranges::max_element(peaks)) << ranks << " ranks";
      }
}

/// States of small tensors are float: a rank with more elements may store fewer bytes of states.
TEST(MostLoaded, IsCorrectIfSomeStatesAreEncoded) {
  const optim::RunTimeOptimizer optimizer{optim::AdamW{.moments = optim::Moments::dynamic8}};
  for (const buffer::AnyLayout& layout : {buffer::AnyLayout(buffer::Owned{}), {buffer::Blocks{}}})
    for (const int ranks : {2, 3, 5}) {
      const auto plan = [&](int rank) { return plan_of({}, ranks, rank, 1, optimizer, layout); };
      const std::vector<std::int64_t> peaks = peaks_of(ranks, [&](int rank) { return plan(rank).peak_bytes(); });
      EXPECT_EQ(plan(most_loaded).peak_bytes(), *std::ranges::max_element(peaks)) << ranks << " ranks";
    }
}

TEST(Muon, StepWorkCountsNewtonSchulzForMatricesOnly) {
  const Shape shape{64, 192};
  EXPECT_EQ(optim::Muon{}.work({.name = "w", .shape = shape, .role = nn::Role::matrix}),
            5 * 2 * 64 * 64 * (2 * 192 + 64));
  EXPECT_EQ(optim::Muon{}.work({.name = "w", .shape = shape, .role = nn::Role::table}), 64 * 192);
  EXPECT_EQ(
      optim::step_work(optim::RunTimeOptimizer{optim::Muon{}})({.name = "w", .shape = shape, .role = nn::Role::table}),
      64 * 192);
}

/// A possible cost of an optimizer of whole matrices: large for a matrix, zero for a vector.
std::int64_t matrices_alone(const Parameter& parameter) {
  const Shape& shape = parameter.shape;
  return shape.rank == 2 ? shape[0] * shape[0] * shape[1] : 0;
}

/// 6 heads and 2 key-value heads on 12 ranks.
TEST(Blocks, OfALlamaAreHeadsAndTheMatricesThatMuonSteps) {
  LlamaConfig config = small;
  config.heads = 6, config.kv_heads = 2;
  const std::int64_t head = config.head_dim * config.hidden_size;
  for (const optim::RunTimeOptimizer& optimizer :
       {optim::RunTimeOptimizer{}, {optim::Muon{}}, {optim::Muon{.per_head = true}}}) {
    const StepWork work = optim::step_work(optimizer);
    int heads = 0, parts_of_tables = 0, parts_of_heads = 0;
    for (int rank = 0; rank < 12; ++rank) {
      comm::Simulated<> communicator({.ranks = 12, .rank = rank});
      const Module module(communicator, Model(config), Sharding{{}, buffer::Blocks{}},
                          {.size = {.sequence_length = 16}, .step_work = work});
      for (const auto& piece : module.shards()) {
        const bool whole = piece.main.numel() == piece.parameter->shape.numel();
        if (work.block_of(*piece.parameter) == piece.parameter->shape.numel()) {
          EXPECT_TRUE(whole) << piece.parameter->name;
        }
        parts_of_tables += piece.parameter->role == nn::Role::table && !whole;
        if (piece.parameter->block == 0) continue;
        EXPECT_EQ(piece.begin % head + piece.main.numel() % head, 0) << piece.parameter->name;
        parts_of_heads += !whole;
        heads += static_cast<int>(piece.main.numel() / head);
      }
    }
    EXPECT_EQ(heads, config.layers * (6 + 2 + 2));
    EXPECT_GT(parts_of_tables, 0);
    EXPECT_EQ(parts_of_heads > 0, optimizer != optim::RunTimeOptimizer{optim::Muon{}});
  }
}

/// 8 ranks in each of 4 groups, over which optimizer state is sharded too.
TEST(Blocks, OfReplicasThatMuonStepsAreWithinTheBound) {
  LlamaConfig config = small;
  config.layers = 7, config.heads = 6, config.kv_heads = 2;
  for (const bool per_head : {false, true}) {
    std::vector<std::int64_t> stepped, at_rest;
    std::int64_t all = 0, largest = 0;
    for (int rank = 0; rank < 32; ++rank) {
      comm::Simulated<device::Meta> communicator({.ranks = 32, .rank = rank});
      using Full = Llama<Stack<RunTimeHybridFull, comm::Simulated<device::Meta>, Bf16Mixed, tiling::Untiled>>;
      const StepWork work = optim::step_work(optim::Muon{.per_head = per_head});
      const ShardedModel<Full> module(communicator, Full(config),
                                      RunTimeHybridFull{.group = 8, .inner = {.other_layout = buffer::Blocks{}}},
                                      {.size = {.sequence_length = 16}, .step_work = work});
      EXPECT_FALSE(module.first_cut(work).present());
      const auto elements = elements_of(module.group_list(), rank);
      stepped.push_back(elements[0]), at_rest.push_back(elements[1]);
      std::int64_t in_ranges = 0;
      for (const GroupTensors* const group : module.group_list()) {
        for (const std::int64_t block : group->layout().blocks) largest = std::max(largest, block);
        for (const buffer::TensorRange& range : group->stepped_ranges(rank)) in_ranges += range.count;
      }
      EXPECT_LE(in_ranges, elements[0]);
      all += elements[0];
    }
    const std::int64_t block = largest + 128;
    EXPECT_LE(*std::ranges::max_element(stepped), all / 32 + block + block / 4);
    EXPECT_LE(*std::ranges::max_element(at_rest), all / 8 + block);
  }
}

TEST(Owned, AssignsWholeTensorsToRanksByStepWork) {
  constexpr int ranks = 3;
  const auto work_of_ranks = [](const StepWork& step_work) {
    std::vector<std::int64_t> work;
    for (const int rank : {0, 1, 2}) {
      comm::Simulated<> communicator({.ranks = ranks, .rank = rank});
      const Module module(communicator, Model(small), Sharding{{}, buffer::Owned{.slack = 2}},
                          {.size = {.sequence_length = 16}, .step_work = step_work});
      work.push_back(0);
      for (const auto& piece : module.shards()) {
        EXPECT_EQ(piece.begin, 0);
        EXPECT_EQ(piece.main.numel(), piece.parameter->shape.numel());
        work.back() += matrices_alone(*piece.parameter);
      }
    }
    return work;
  };
  const auto largest = [](const std::vector<std::int64_t>& work) { return *std::ranges::max_element(work); };
  EXPECT_LT(largest(work_of_ranks({matrices_alone})), largest(work_of_ranks({elementwise_work})));
}

using Dry = comm::Simulated<device::Meta>;
using Owned = WithLayout<FullyShard<>, buffer::Owned>;

/// A tensor of 8 rows over 4 ranks.
template <class Sharding>
struct OnFourRanks {
  const std::vector<Unit> units = {{.name = "unit", .parameters = {{"w", {8, 64}}}}};
  Dry communicator{{.ranks = 4, .rank = 0}};
  ShardedModule<Stack<Sharding, Dry, Fp32>> module{communicator, units, {}, {}};
  std::vector<const GroupTensors*> groups = module.group_list();
};

TEST(MostLoadedRanks, AreThoseWithTheMostRowsIfShardsAreEqual) {
  const OnFourRanks<FullyShard<>> evenly;
  constexpr std::array<std::int64_t, 4> rows = {3, 4, 3, 4};
  EXPECT_EQ(most_loaded_ranks(evenly.groups, 4), std::vector<int>{0});
  EXPECT_EQ(most_loaded_ranks(evenly.groups, 4, rows), std::vector<int>{1});
  EXPECT_EQ(one_of_each_load(evenly.groups, 4), std::vector<int>{0});
  EXPECT_EQ(one_of_each_load(evenly.groups, 4, rows), (std::vector<int>{0, 1}));
  EXPECT_TRUE(loads_ranks_alike(evenly.groups, 4));
  EXPECT_FALSE(loads_ranks_alike(evenly.groups, 4, rows));
}

TEST(MostLoadedRanks, AreSeveralIfOneStoresMoreAndOthersHaveMoreRows) {
  const OnFourRanks<Owned> owned;  // one rank has the whole tensor
  const std::vector<int> owner = most_loaded_ranks(owned.groups, 4);
  ASSERT_EQ(owner.size(), 1u);
  std::array<std::int64_t, 4> rows = {4, 4, 4, 4};
  EXPECT_EQ(most_loaded_ranks(owned.groups, 4, rows), owner);
  rows[static_cast<std::size_t>(owner.front())] = 3;
  const std::vector<int> most = most_loaded_ranks(owned.groups, 4, rows);
  EXPECT_EQ(most.size(), 2u);
  EXPECT_EQ(std::ranges::count(most, owner.front()), 1);
  EXPECT_FALSE(loads_ranks_alike(owned.groups, 4));
}

}  // namespace
}  // namespace fsdp::plan
