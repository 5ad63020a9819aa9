// SPDX-License-Identifier: Apache-2.0
// Modules of dry runs, whose strategy is a value, plan what modules with the strategy's own type plan.
#include <tessera/fsdp/module/stack.hpp>

#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <support/errors.hpp>
#include <support/stacks/own_schedule.hpp>
#include <tessera/comm/simulated.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/stack_mesh.hpp>
#include <tessera/fsdp/plan/dry_run_parts.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp {
namespace {

template <class Strategy>
using Typed = Stack<Strategy, comm::Simulated<>, Fp32>;
template <class Strategy>
using Meta = MetaModuleStack<Typed<Strategy>>;

/// A layout policy of a user's, which never cuts a tensor, or cuts one wrongly.
struct OwnLayout : buffer::Owned {
  static constexpr std::string_view name = "own layout";
  bool wrong = false;
  std::vector<buffer::Layout> build(std::span<const buffer::TensorGroup> groups, int parts) const {
    std::vector<buffer::Layout> layouts = Owned::build(groups, parts);
    if (wrong) layouts.front().runs.clear();
    return layouts;
  }
};
using OwnStrategy = WithLayout<test::OwnSchedule, OwnLayout>;

/// One type for each placement and memory of optimizer state.
template <class A, class B>
inline constexpr bool share = std::is_same_v<Meta<A>, Meta<B>>;
static_assert(share<FullyShard<>, Replicated> && share<Zero3, OwnStrategy> && share<RunTimeAny, HybridShard<Zero1>>);
static_assert(share<Offload<Zero2>, Offload<RunTimeAny>> && !share<Zero2, Offload<Zero2>>);
static_assert(!share<Zero2, HybridShard<Zero2, OptimizerAcross::sharded>>);

/// A Llama's dry runs are in the library; a model derived from it takes what its stack needs.
template <class Strategy, class Sequence = WholeSequences>
using LlamaOf = Llama<Stack<Strategy, comm::Threads<>, Fp32, tiling::Untiled, Sequence>>;
template <class StackT>
struct OwnModel : Llama<StackT> {
  template <class Other>
  using On = OwnModel<Other>;
};
static_assert(std::is_same_v<plan::MetaTwin<LlamaOf<OwnStrategy>>, plan::MetaTwin<LlamaOf<RunTimeAny, Ulysses>>>);
static_assert(plan::detail::is_in_library<plan::MetaTwin<LlamaOf<Offload<RunTimeHybridFull>>>>);
/// Shares sequences in its own way, which the library's instances do not.
struct OwnSequences : Ulysses {};
static_assert(!plan::detail::is_in_library<plan::MetaTwin<LlamaOf<Zero2, OwnSequences>>>);
static_assert(!plan::detail::is_in_library<plan::MetaTwin<LlamaOf<Zero2>, optim::AdamW>>);
static_assert(std::is_same_v<plan::MetaTwin<OwnModel<LlamaOf<Zero2>::Stack>>,
                             OwnModel<MetaStack<LlamaOf<FullyShard<>>::Stack, false, WholeSequences>>>);

const std::vector<Unit> three_units = {{.name = "first", .parameters = {{"a", {7, 64}}, {"b", {64}}}},
                                       {.name = "second", .parameters = {{"c", {64, 32}}, {"d", {5}}}},
                                       {.name = "third", .parameters = {{"e", {9, 33}}}}};

const StepWork all{.block = elementwise_work};

template <class Strategy>
void expect_same_plan(const Strategy& strategy, int ranks) {
  SCOPED_TRACE(policy_text(strategy) + " on " + std::to_string(ranks) + " ranks");
  for (int rank = 0; rank < ranks; ++rank) {
    comm::Simulated<> one({.ranks = ranks, .rank = rank}), other({.ranks = ranks, .rank = rank});
    ShardedModule<Typed<Strategy>> typed(one, three_units, strategy, {});
    ShardedModule<Meta<Strategy>> meta(other, three_units, described<Typed<Strategy>, Meta<Strategy>>(strategy), {});
    EXPECT_EQ(meta.peak_bytes(), typed.peak_bytes());
    EXPECT_EQ(meta.schedule(sharding::Pass::train), typed.schedule(sharding::Pass::train));
    EXPECT_EQ(meta.communicators().size(), typed.communicators().size());
    EXPECT_EQ(meta.whole_at_rest(), typed.whole_at_rest());
    EXPECT_EQ(meta.first_cut(all), typed.first_cut(all));
    EXPECT_EQ(elements_of(meta.group_list(), rank), elements_of(typed.group_list(), rank));
  }
}

TEST(Described, PlansWhatTheStrategysTypePlans) {
  for (const int ranks : {1, 4}) {
    each_kind<RunTimeAny>([&](RunTimeAny strategy) {
      for (const buffer::AnyLayout& layout :
           {buffer::AnyLayout(buffer::PerParameter{}), {buffer::Flat{}}, {buffer::Owned{}}, {buffer::Blocks{}}}) {
        strategy.other_layout = layout;
        expect_same_plan(strategy, ranks);
      }
    });
    expect_same_plan(OwnStrategy{}, ranks);
  }
  expect_same_plan(*read_strategy<RunTimeAny>("hybrid:2"), 4);
  expect_same_plan(*read_strategy<RunTimeAny>("fsdp2:2"), 4);
  expect_same_plan(RunTimeHybridFull{.group = 2}, 4);
}

TEST(Described, KeepsTensorsWholeIfTheLayoutDoes) {
  comm::Simulated<> world({.ranks = 2, .rank = 0});
  const OwnStrategy strategy;
  const ShardedModule<Meta<OwnStrategy>> meta(world, three_units,
                                              described<Typed<OwnStrategy>, Meta<OwnStrategy>>(strategy), {});
  EXPECT_FALSE(meta.first_cut(all).present());
  static_assert(tensors_whole<OwnStrategy> && tensors_whole<Meta<OwnStrategy>::Sharding>);
}

/// Groups of `ranks`, whatever the facts.
struct GroupsOf : FullyShard<> {
  static constexpr int mesh_axes = 2;
  int ranks = 0;
  int ranks_per_group() const { return ranks; }
};
struct Claims : FullyShard<> {
  sharding::Facts facts() const { return {.group_after_forward = true}; }
};

template <class Strategy>
void expect_same_error(const Strategy& strategy, std::string_view begin) {
  const auto error_on = [&]<class StackT>(const typename StackT::Sharding& sharding, const StackT*) {
    return test::input_error_of([&] {
      comm::Simulated<> world({.ranks = 4, .rank = 0});
      const ShardedModule<StackT> module(world, three_units, sharding, {});
    });
  };
  using OnMeta = Meta<Strategy>;
  const std::string said = error_on(described<Typed<Strategy>, OnMeta>(strategy), static_cast<OnMeta*>(nullptr));
  EXPECT_EQ(said, error_on(strategy, static_cast<Typed<Strategy>*>(nullptr)));
  EXPECT_TRUE(said.starts_with(begin)) << said;
}

TEST(Described, IsRefusedInTheWordsForTheStrategysType) {
  expect_same_error(GroupsOf{}, "mesh: ");
  expect_same_error(GroupsOf{{}, 2}, "sharding: the mesh has groups of 2 ranks");
  expect_same_error(Claims{},
                    "sharding: a strategy's facts state what crosses groups of ranks or stays in them, and it");
  const OwnStrategy wrong{{}, {{}, true}};
  constexpr std::string_view of_layout = "layout own layout: its layout of group 0 over 4 ranks";
  expect_same_error(wrong, of_layout);
  using OnMeta = Meta<OwnStrategy>;
  const auto once = described<Typed<OwnStrategy>, OnMeta>(wrong);
  comm::Simulated<> world({.ranks = 4, .rank = 0});
  const std::string twice = test::input_error_of(
      [&] { const ShardedModule<OnMeta> module(world, three_units, described<OnMeta, OnMeta>(once), {}); });
  EXPECT_TRUE(twice.starts_with(of_layout)) << twice;
}

/// The Meta instance of a stack with whole sequences may be one that could share them.
TEST(Described, SharesSequencesOnlyIfItsStackDoes) {
  using Shares = Stack<FullyShard<>, comm::Simulated<>, Fp32, tiling::Untiled, Ulysses>;
  using OnMeta = MetaStack<Shares, true, Ulysses>;
  const FullyShard<> strategy;
  comm::Simulated<> world({.ranks = 4, .rank = 0});
  StackMesh<OnMeta> shares(world, described<Shares, OnMeta>(strategy).calls);
  shares.share_sequences(2);
  EXPECT_NE(shares.sequence_axis(), nullptr);
  StackMesh<OnMeta> whole(world, described<Typed<FullyShard<>>, OnMeta>(strategy).calls);
  const std::string_view refused =
      "sequence: 2 ranks are to share each sequence, and this stack has whole ones; take fsdp::Ulysses";
  EXPECT_INPUT_ERROR(whole.share_sequences(2), refused);
  const auto module_of = [&](const auto& sharding) {
    const ShardedModule<OnMeta> module(world, three_units, sharding, {.passes = {.ranks_per_sequence = 2}});
  };
  module_of(described<Shares, OnMeta>(strategy));
  EXPECT_INPUT_ERROR(module_of(described<Typed<FullyShard<>>, OnMeta>(strategy)), refused);
}

}  // namespace
}  // namespace fsdp
