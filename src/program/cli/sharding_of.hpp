// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts --sharding and --layout to a value of a strategy's type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include <tessera/fsdp/buffer/any_layout.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

#include "stack_choice.hpp"

namespace fsdp::cli {

namespace detail {

/// Returns the layout to use; nullopt: the strategy's own.
inline std::optional<buffer::AnyLayout> layout_of(const ShardingChoice& choice) {
  switch (other_layout(choice)) {
    case LayoutChoice::per_parameter: return buffer::PerParameter{};
    case LayoutChoice::flat: return buffer::Flat{};
    case LayoutChoice::rows: return buffer::Rows{};
    case LayoutChoice::owned: return buffer::Owned{};
    case LayoutChoice::own: break;
  }
  return std::nullopt;
}

/// Returns the choice with the strategy's own layout.
inline ShardingChoice with_own_layout(ShardingChoice choice) {
  choice.layout = LayoutChoice::own;
  return choice;
}

/// Returns the choice without its pieces.
inline ShardingChoice without_pieces(ShardingChoice choice) {
  choice.pieces = 0;
  return choice;
}

/// The strategy that a Reproducible cuts into pieces; void for any other type.
template <class Sharding>
struct CutByPieces {
  using Type = void;
};
template <class S>
struct CutByPieces<Reproducible<S>> {
  using Type = S;
};

/// A strategy type with a fixed kind.
template <class Sharding>
struct FromChoice {
  static constexpr bool cuts = std::is_same_v<typename Sharding::AtRest, buffer::Shard>;

  static bool takes(const ShardingChoice& choice) {
    return Sharding::name == kind_name(cuts ? choice : with_own_layout(choice));
  }
  /// Makes the strategy; sets those of the choice's numbers that the type has.
  static Sharding make(const ShardingChoice& choice) {
    require<InputError>(cuts || choice.layout == LayoutChoice::own, "--layout ", name_of(choice.layout), ": ",
                        Sharding::name, " cuts no tensor, so that no layout changes it; leave --layout out");
    Sharding sharding{};
    if constexpr (requires { sharding.group; })
      sharding.group = static_cast<int>(std::max<std::int64_t>(choice.number, 1));
    if constexpr (requires { sharding.inner; })
      sharding.inner = FromChoice<decltype(sharding.inner)>::make(inner_of(choice));
    if constexpr (requires { sharding.prefetch_depth; })
      sharding.prefetch_depth = static_cast<int>(choice.prefetch_depth);
    if constexpr (requires { sharding.reduce; })
      sharding.reduce = choice.deferred ? ReduceGradients::last_micro_batch : ReduceGradients::every_micro_batch;
    if constexpr (requires { sharding.persistence_threshold; }) sharding.persistence_threshold = choice.persistence;
    if constexpr (requires { sharding.live_bound; }) sharding.live_bound = choice.live_bound;
    if constexpr (requires { sharding.pieces; }) sharding.pieces = static_cast<int>(choice.pieces);
    return sharding;
  }
  static std::string kinds() { return std::string(Sharding::name); }
};

/// A strategy with pieces.
template <class S>
struct FromChoice<Reproducible<S>> {
  static bool takes(const ShardingChoice& choice) {
    return choice.pieces > 0 && FromChoice<S>::takes(without_pieces(choice));
  }
  static Reproducible<S> make(const ShardingChoice& choice) {
    return {FromChoice<S>::make(without_pieces(choice)), static_cast<int>(choice.pieces)};
  }
  static std::string kinds() { return FromChoice<S>::kinds() + ":pieces=V"; }
};

/// A hybrid strategy whose inner strategy is chosen at run time.
template <class... S, OptimizerAcross optimizer>
struct FromChoice<HybridShard<OneOf<S...>, optimizer>> {
  using Inner = FromChoice<OneOf<S...>>;
  static constexpr bool full = optimizer == OptimizerAcross::sharded;

  static bool takes(const ShardingChoice& choice) {
    return choice.kind == ShardingChoice::Kind::hybrid && choice.full == full && Inner::takes(inner_of(choice));
  }
  static HybridShard<OneOf<S...>, optimizer> make(const ShardingChoice& choice) {
    return {.group = static_cast<int>(std::max<std::int64_t>(choice.number, 1)),
            .inner = Inner::make(inner_of(choice))};
  }
  static std::string kinds() { return full ? "hybrid:K:full[:INNER]" : "hybrid:K[:INNER]"; }
};

/// A strategy that is chosen at run time, with any layout.
template <class First, class... Rest>
struct FromChoice<OneOf<First, Rest...>> {
  using Strategy = OneOf<First, Rest...>;

  static bool takes(const ShardingChoice& choice) {
    const ShardingChoice own = with_own_layout(choice);
    return FromChoice<First>::takes(own) || (FromChoice<Rest>::takes(own) || ...);
  }
  static Strategy make(const ShardingChoice& choice) {
    const ShardingChoice own = with_own_layout(choice);
    Strategy chosen;
    const auto hold = [&]<class S>(std::type_identity<S>) {
      const bool taken = FromChoice<S>::takes(own);
      if (taken) chosen.strategy.template emplace<S>(FromChoice<S>::make(own));
      return taken;
    };
    const bool found = hold(std::type_identity<First>{}) || (hold(std::type_identity<Rest>{}) || ...);
    require<InputError>(found, "--sharding ", name_of(choice), " is none of ", kinds());
    chosen.other_layout = layout_of(choice);
    return chosen;
  }
  /// "fsdp2[:pieces=V]" names two alternatives: the strategy, and the same with pieces.
  static std::string kinds() {
    std::string text;
    const auto add = [&]<class S>(std::type_identity<S>) {
      if (holds<typename CutByPieces<S>::Type>) return;
      text += (text.empty() ? "" : " | ") + FromChoice<S>::kinds() + (holds_pieces_of<S> ? "[:pieces=V]" : "");
    };
    add(std::type_identity<First>{});
    (add(std::type_identity<Rest>{}), ...);
    return text;
  }

 private:
  template <class S>
  static constexpr bool holds = std::is_same_v<S, First> || (std::is_same_v<S, Rest> || ...);
  template <class S>
  static constexpr bool holds_pieces_of = std::is_same_v<S, typename CutByPieces<First>::Type> ||
                                          (std::is_same_v<S, typename CutByPieces<Rest>::Type> || ...);
};

/// A strategy with the optimizer in host memory (--offload).
template <class... S>
struct FromChoice<Offload<OneOf<S...>>> : FromChoice<OneOf<S...>> {
  static Offload<OneOf<S...>> make(const ShardingChoice& choice) { return {FromChoice<OneOf<S...>>::make(choice)}; }
};

}  // namespace detail

/// Returns whether a strategy type can represent the choice.
template <class Sharding>
bool takes(const ShardingChoice& choice) {
  return detail::FromChoice<Sharding>::takes(choice);
}

/// Returns the chosen strategy as a value of its type.
template <class Sharding>
Sharding sharding_of(const ShardingChoice& choice) {
  return detail::FromChoice<Sharding>::make(choice);
}

/// Returns the kinds that a strategy type can represent, as --sharding names them.
template <class Sharding>
std::string sharding_kinds() {
  return detail::FromChoice<Sharding>::kinds();
}

}  // namespace fsdp::cli
