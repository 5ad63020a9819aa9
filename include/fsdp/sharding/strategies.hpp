// SPDX-License-Identifier: Apache-2.0
/// @file
/// All sharding strategies: how weights, gradients and optimizer state are placed, at rest and in use.
///
/// To add one, write a struct with the members of the concept (strategy.hpp) here, and add its schedules to
/// tests/sharding/schedule_test.cpp. For the program, add its type to RunTimeAny (tessera/fsdp/sharding/run_time.hpp).
/// Texts, flags and help are generated from the parts that its `visit` lists (tessera/fsdp/core/policy_text.hpp).
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp {
namespace detail {

inline constexpr PolicyNumber group_number = {.kind = "K"};
inline constexpr PolicyNumber prefetch_number = {
    .name = "prefetch", .usual = 1, .least = 0, .help = "units gathered ahead"};
inline constexpr PolicyNumber budget_number = {
    .name = "budget",
    .most = std::int64_t{1} << 50,
    .is_bytes = true,
    .help =
        "most bytes of the slots for gathered weights, as 512MiB, or auto (train: what --memory leaves); within them "
        "each group is held for a use, a micro-batch or the step, so that the least is gathered"};

}  // namespace detail

/// How FullyShard treats a unit's gathered weights between its forward and its backward. `no` keeps them; `yes`
/// releases them and gathers them again; `to_group` keeps a part on each rank of a group and gathers from these parts.
enum class ReshardAfterForward : std::uint8_t { no, yes, to_group };

/// When gradients are reduced: after every micro-batch, so that only shards are stored in between, or once after the
/// last, so that unreduced sums are stored.
enum class ReduceGradients : std::uint8_t { every_micro_batch, last_micro_batch };

/// FSDP2: every tensor is sharded along its first dimension; weights are gathered and gradients reduce-scattered unit
/// by unit.
template <ReshardAfterForward reshard = ReshardAfterForward::yes>
struct FullyShard {
  static constexpr int mesh_axes = reshard == ReshardAfterForward::to_group ? 2 : 1;
  using AtRest = buffer::Shard;
  using Layout = buffer::PerParameter;
  int prefetch_depth = 1;  ///< number of computations by which a gather is issued before its use
  ReduceGradients reduce = ReduceGradients::every_micro_batch;  ///< when gradients are reduce-scattered
  int group = 1;  ///< to_group: number of ranks that together keep the weights after forward
  /// With `yes`: upper bound for the bytes of the slots for gathered weights; within it, weights stay gathered for
  /// longer, so that less is gathered (sharding::Facts). 0: no bound, and all weights are released after each use.
  std::int64_t budget = 0;

  int ranks_per_group() const requires(mesh_axes == 2) { return group; }
  /// Throws InputError for a budget in combination with `no` or `to_group`.
  constexpr sharding::Rules rules() const {
    if (reshard != ReshardAfterForward::yes && budget != 0)
      throw InputError(
          "sharding: a budget for gathered weights chooses how long they are held, and this FullyShard says so itself; "
          "take FullyShard<ReshardAfterForward::yes>, or leave the budget out");
    return {.facts = {.group_after_forward = reshard == ReshardAfterForward::to_group, .budget = budget},
            .hold = reshard == ReshardAfterForward::no ? sharding::Hold::micro_batch : sharding::Hold::use,
            .reduce_every_micro_batch = reduce == ReduceGradients::every_micro_batch,
            .prefetch_depth = prefetch_depth};
  }
  std::string text() const { return listed_text(*this); }
  void visit(PolicyParts& parts) {
    parts.word("fsdp2");
    if constexpr (reshard == ReshardAfterForward::no) parts.word("no-reshard");
    if constexpr (reshard == ReshardAfterForward::to_group) parts.number(detail::group_number, group);
    parts.number({.name = "deferred", .is_option = true, .help = "reduce after the last micro-batch"}, reduce);
    parts.number(detail::prefetch_number, prefetch_depth);
    if constexpr (reshard == ReshardAfterForward::yes) parts.number(detail::budget_number, budget);
  }
};

/// ZeRO stage 1: the optimizer's state is sharded. Weights are gathered at their first use in a step and kept until its
/// end; gradients are summed over micro-batches and reduce-scattered once.
struct Zero1 {
  static constexpr std::string_view name = "zero1";
  using AtRest = buffer::Shard;
  using Layout = buffer::Flat;

  constexpr sharding::Rules rules() const { return {.hold = sharding::Hold::step, .reduce_every_micro_batch = false}; }
};

/// ZeRO stage 2: as stage 1, with gradients reduce-scattered after every micro-batch, so that only their shard is kept.
struct Zero2 {
  static constexpr std::string_view name = "zero2";
  using AtRest = buffer::Shard;
  using Layout = buffer::Flat;

  constexpr sharding::Rules rules() const { return {.hold = sharding::Hold::step, .reduce_every_micro_batch = true}; }
};

/// ZeRO stage 3: as FSDP2, but each unit's tensors form one flat range that is cut into equal parts. Tensors of at most
/// `persistence_threshold` elements are treated as in stage 2. Source: DeepSpeed's param_persistence_threshold and
/// max_live_parameters.
struct Zero3 {
  using AtRest = buffer::Shard;
  using Layout = buffer::Flat;
  int prefetch_depth = 1;                  ///< number of computations by which a gather is issued before its use
  std::int64_t persistence_threshold = 0;  ///< in elements; larger tensors are gathered for each use
  /// Upper bound for the elements gathered at the same time for single uses; 0: no bound.
  std::int64_t live_bound = 0;
  std::int64_t budget = 0;  ///< as in FullyShard, including persistent tensors; not with a live bound

  constexpr sharding::Rules rules() const {
    return {.facts = {.persistence_threshold = persistence_threshold, .budget = budget},
            .hold = sharding::Hold::use,
            .reduce_every_micro_batch = true,
            .prefetch_depth = prefetch_depth,
            .live_bound = live_bound};
  }
  std::string text() const { return listed_text(*this); }
  void visit(PolicyParts& parts) {
    constexpr std::int64_t most = std::int64_t{1} << 50;
    parts.word("zero3");
    parts.number(detail::prefetch_number, prefetch_depth);
    parts.number({.name = "persist", .most = most, .help = "tensors up to N elements stay gathered"},
                 persistence_threshold);
    parts.number({.name = "live", .most = most, .help = "most elements gathered at a time"}, live_bound);
    parts.number(detail::budget_number, budget);
  }
};

/// Data parallelism (DDP): every rank has all weights; gradients are summed over micro-batches and all-reduced once.
struct Replicated {
  static constexpr std::string_view name = "replicated";
  using AtRest = buffer::Replicate;
  using Layout = buffer::Flat;

  constexpr sharding::Rules rules() const {
    return {.hold = sharding::Hold::always, .reduce_every_micro_batch = false};
  }
};

/// The placement of HybridShard's main weights and optimizer state over the mesh's outer axis.
enum class OptimizerAcross : std::uint8_t { replicated, sharded };

/// HSDP: the strategy Inner within groups of consecutive ranks, each of which holds a whole model. Gradients are
/// reduced within a group as Inner specifies, and between groups once per step. If optimizer state is sharded between
/// groups too (HFSDP), the reduction between groups is a reduce-scatter, and updated weights are gathered between
/// groups at their first use in a step.
template <class Inner, OptimizerAcross optimizer = OptimizerAcross::replicated>
struct HybridShard {
  static_assert(std::is_same_v<typename Inner::AtRest, buffer::Shard>,
                "fsdp: HybridShard replicates what its inner strategy shards; Replicated shards nothing: use it alone, "
                "or put FullyShard, Zero1, Zero2 or Zero3 inside");
  static_assert(
      !requires(Inner inner) { inner.pieces; },
      "fsdp: HybridShard adds up the gradients of each group of ranks first, and Reproducible those of a "
      "step's pieces one after the other; use Reproducible alone");
  static_assert(
      !requires { requires Inner::axes_by_value; },
      "fsdp: HybridShard forms groups of ranks, and values of its inner strategy may form some or replicate; put "
      "FullyShard, Zero1, Zero2, Zero3 or RunTimeSharded inside");
  static constexpr int mesh_axes = 2;
  using AtRest = buffer::Shard;
  using Across = std::conditional_t<optimizer == OptimizerAcross::replicated, buffer::Replicate, buffer::Shard>;
  using Layout = typename Inner::Layout;
  int group = 1;  ///< number of ranks per group
  Inner inner{};  ///< the strategy within a group, with its numbers

  Layout layout() const { return layout_of(inner); }
  std::string text() const { return listed_text(*this); }
  /// Lists its own parts, then the inner strategy, as in "hybrid:2:full:zero3"; an inner fsdp2 is omitted.
  void visit(PolicyParts& parts) {
    parts.word("hybrid");
    parts.number(detail::group_number, group);
    if constexpr (optimizer == OptimizerAcross::sharded) parts.word("full");
    parts.inner(inner, "fsdp2");
  }
  int ranks_per_group() const { return group; }
  constexpr sharding::Facts facts() const {
    sharding::Facts facts = sharding::facts_of(inner);
    facts.across = optimizer == OptimizerAcross::replicated ? sharding::Across::all_reduce : sharding::Across::shard;
    return facts;
  }
  constexpr sharding::Rules rules() const requires sharding::GivesRules<Inner> {
    sharding::Rules rules = inner.rules();
    rules.facts = facts();
    return rules;
  }
  /// The inner strategy's parts, on this mesh.
  /// @{
  bool per_unit() const requires sharding::MayHaveParts<Inner> { return inner.per_unit(); }
  std::vector<StrategyPart> parts() const requires sharding::MayHaveParts<Inner> {
    std::vector<StrategyPart> list = inner.parts();
    for (StrategyPart& part : list) {
      require<InputError>(!part.mesh.ranks_per_group, "sharding: the part '", part.name,
                          "' inside HybridShard forms groups of ranks too; give it the strategy within a group");
      part.rules.facts.across = facts().across;
      part.mesh.ranks_per_group = group;
      part.name = message("hybrid:", group, optimizer == OptimizerAcross::sharded ? ":full:" : ":", part.name);
      part.shards_across = optimizer == OptimizerAcross::sharded;
    }
    return list;
  }
  /// @}
  /// Returns the inner strategy's own schedule. The problem specifies the communication over the outer axis.
  sharding::Schedule schedule(const sharding::Problem& problem) const requires sharding::GivesSchedule<Inner> {
    return inner.schedule(problem);
  }
};

/// A strategy whose main weights and optimizer state live in the device's offload space
/// (tessera/fsdp/device/host_memory.hpp); a step moves gradients there and updated weights back, piece by piece.
/// Source: ZeRO-Offload (Ren et al. 2021).
template <class Strategy>
struct Offload : Strategy {
  static constexpr bool offloads_optimizer = true;
  std::string text() const { return listed_text(*this); }
  void visit(PolicyParts& parts) {
    parts.part<Strategy>(*this);
    parts.suffix("offload", "optimizer");
  }
};

/// A strategy with a different layout policy.
template <class Strategy, buffer::LayoutPolicy L>
struct WithLayout : Strategy {
  static_assert(!sharding::MayHaveParts<Strategy>,
                "fsdp: WithLayout is of one strategy, and each part of a PerUnit has its own layout, and a "
                "RunTimeStrategy the member other_layout; put WithLayout into the parts, or set other_layout");
  using Layout = L;
  L policy{};  ///< the layout, with its numbers

  L layout() const { return policy; }
  std::string text() const { return listed_text(*this); }
  void visit(PolicyParts& parts) {
    parts.part<Strategy>(*this);
    parts.suffix("layout", policy_text(policy));
  }
};

namespace detail {
template <class Strategy>
inline constexpr bool is_hybrid = false;
template <class Inner, OptimizerAcross optimizer>
inline constexpr bool is_hybrid<HybridShard<Inner, optimizer>> = true;
}  // namespace detail

/// A strategy whose steps are bit-identical on any number of ranks. A step's batch is split into `pieces` pieces
/// (sharding::piece_of), gradients are reduced after every piece, in the order of the pieces, and the sums of norms and
/// losses do not depend on the number of ranks. Zero1 then acts as Zero2. Even on one rank, gradients use a slot and
/// are rounded to the wire type.
template <class Strategy>
struct Reproducible : Strategy {
  static_assert(
      std::is_same_v<typename Strategy::AtRest, buffer::Shard>,
      "fsdp: Reproducible adds the gradients of a step's pieces one after the other, and Replicated has every "
      "rank add up its own first; take FullyShard, Zero2 or Zero3 inside");
  static_assert(!detail::is_hybrid<Strategy>,
                "fsdp: Reproducible adds the gradients of a step's pieces one after the other, and HybridShard adds up "
                "those of each group of ranks first; take FullyShard, Zero2 or Zero3 inside");
  static_assert(
      !requires(Strategy held) { held.strategy.index(); },
      "fsdp: Reproducible is of one strategy, and a RunTimeStrategy holds several; put Reproducible inside it");
  int pieces = 1;  ///< number of pieces of a step's batch; at least 1

  constexpr sharding::Facts facts() const {
    sharding::Facts facts = sharding::facts_of(static_cast<const Strategy&>(*this));
    facts.pieces = pieces;
    return facts;
  }
  constexpr sharding::Rules rules() const requires sharding::GivesRules<Strategy> {
    sharding::Rules rules = Strategy::rules();
    rules.facts = facts();
    rules.reduce_every_micro_batch = true;
    return rules;
  }
  /// The parts of the strategy, whose gradients are reduced after every piece.
  std::vector<StrategyPart> parts() const requires sharding::MayHaveParts<Strategy> {
    std::vector<StrategyPart> list = Strategy::parts();
    for (StrategyPart& part : list) part.rules.reduce_every_micro_batch = true;
    return list;
  }
  std::string text() const { return listed_text(*this); }
  void visit(PolicyParts& parts) {
    parts.part<Strategy>(*this);
    parts.number({.name = "pieces",
                  .kind = "V",
                  .most = 1 << 20,
                  .help = "a step is cut into N pieces, and has the same bits on any number of ranks"},
                 pieces);
  }
};

template <class S>
inline constexpr bool tensors_whole<Offload<S>> = tensors_whole<S>;
template <class S>
inline constexpr bool tensors_whole<Reproducible<S>> = tensors_whole<S>;

namespace detail {

/// The library's own strategies.
/// @{
template <ReshardAfterForward reshard>
inline constexpr bool checked_by_library<FullyShard<reshard>> = true;
template <>
inline constexpr bool checked_by_library<Zero1> = true;
template <>
inline constexpr bool checked_by_library<Zero2> = true;
template <>
inline constexpr bool checked_by_library<Zero3> = true;
template <>
inline constexpr bool checked_by_library<Replicated> = true;
template <class Inner, OptimizerAcross optimizer>
inline constexpr bool checked_by_library<HybridShard<Inner, optimizer>> = checked_by_library<Inner>;
template <class S>
inline constexpr bool checked_by_library<Offload<S>> = checked_by_library<S>;
template <class S, buffer::LayoutPolicy L>
inline constexpr bool checked_by_library<WithLayout<S, L>> = checked_by_library<S>;
template <class S>
inline constexpr bool checked_by_library<Reproducible<S>> = checked_by_library<S>;
/// @}

}  // namespace detail

}  // namespace fsdp
