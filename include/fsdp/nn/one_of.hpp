// SPDX-License-Identifier: Apache-2.0
/// @file
/// Blocks of several kinds in one model: a variant of the kinds, and `visit_kind`, which calls a function with the kind
/// that the variant contains.
///
/// Each kind has its own Fields and Saved. Blocks of different kinds differ in type; blocks of one kind differ only in
/// member values.
#pragma once

#include <type_traits>
#include <utility>
#include <variant>

#include <tessera/fsdp/nn/module.hpp>

namespace fsdp::nn {

namespace detail {

/// Wraps a kind's Saved in a distinct type, since two kinds may have the same type Saved.
template <class Kind>
struct SavedOf {
  typename Kind::Saved saved{};
};

template <class Kind, class... Kinds>
inline constexpr int times_listed = (0 + ... + (std::is_same_v<Kind, Kinds> ? 1 : 0));

}  // namespace detail

/// A block that is one of several kinds. All kinds read the same Shared.
template <class... Kinds>
struct OneOf {
  static_assert((... && (detail::times_listed<Kinds, Kinds...> == 1)),
                "fsdp: nn::OneOf lists a kind of block twice; list each once, since blocks of one kind may differ in "
                "their values");

  std::variant<Kinds...> kind;

  /// The Saved of the block's kind; empty before the first forward.
  struct Saved {
    std::variant<std::monostate, detail::SavedOf<Kinds>...> of;
  };
  using Shared = typename std::variant_alternative_t<0, std::variant<Kinds...>>::Shared;
  static_assert((... && std::is_same_v<typename Kinds::Shared, Shared>),
                "fsdp: the kinds of an nn::OneOf read different Shared types; an entry makes one, so give all kinds "
                "that one");

  OneOf() = default;
  /// Constructs a block of this kind.
  template <class Kind>
  requires(detail::times_listed<std::remove_cvref_t<Kind>, Kinds...> == 1) OneOf(Kind&& block)
      : kind(std::forward<Kind>(block)) {}
};

template <class Block>
inline constexpr bool is_one_of = false;
template <class... Kinds>
inline constexpr bool is_one_of<OneOf<Kinds...>> = true;

/// Calls `visit(block)`.
template <class Block, class Visit>
decltype(auto) visit_kind(const Block& block, Visit&& visit) {
  return visit(block);
}
/// Calls `visit(kind)` with the kind that the block contains.
template <class... Kinds, class Visit>
decltype(auto) visit_kind(const OneOf<Kinds...>& block, Visit&& visit) {
  return std::visit(std::forward<Visit>(visit), block.kind);
}

/// Calls `visit(block, saved)`.
template <class Block, class Visit>
decltype(auto) visit_kind(const Block& block, typename Block::Saved& saved, Visit&& visit) {
  return visit(block, saved);
}
/// Calls `visit(kind, saved)` with the kind's Saved. If `saved` contains another kind's Saved, it is replaced first.
template <class... Kinds, class Visit>
decltype(auto) visit_kind(const OneOf<Kinds...>& block, typename OneOf<Kinds...>::Saved& saved, Visit&& visit) {
  return std::visit(
      [&]<class Kind>(const Kind& kind) -> decltype(auto) {
        using Mine = detail::SavedOf<Kind>;
        auto* mine = std::get_if<Mine>(&saved.of);
        return visit(kind, (mine != nullptr ? *mine : saved.of.template emplace<Mine>()).saved);
      },
      block.kind);
}

template <class Block, class L>
inline constexpr bool all_kinds_are_blocks = BlockModule<Block, L>;
template <class... Kinds, class L>
inline constexpr bool all_kinds_are_blocks<OneOf<Kinds...>, L> = (... && BlockModule<Kinds, L>);

template <class Block, class L>
inline constexpr bool all_kinds_cache = CachingBlock<Block, L>;
template <class... Kinds, class L>
inline constexpr bool all_kinds_cache<OneOf<Kinds...>, L> = (... && CachingBlock<Kinds, L>);

}  // namespace fsdp::nn
