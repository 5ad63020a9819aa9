// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of the optional members of a model's units: a member with the right name and a wrong type gives a readable
/// error.
///
/// The checks of a batch's optional members are in tessera/fsdp/nn/batch.hpp.
#pragma once

#include <concepts>

#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/one_of.hpp>
#include <tessera/fsdp/nn/stages.hpp>

namespace fsdp::nn {

namespace detail {

FSDP_HAS_MEMBER(logits)
FSDP_HAS_MEMBER(logits_columns)

/// Whether a module has no `plan`, or a `plan` that dry runs can show. A constraint may remove the `plan` of a wrapper.
template <class M, class L>
concept PlansOrNot = !requires {
  &M::plan;
}
|| requires(const M module, Context<L>& context) {
  { module.plan(context) } -> std::same_as<tiling::TilePlan>;
};

/// Whether a block has both cache members (`cache_columns` and `extend`) or neither.
template <class M, class L>
concept CachesOrNot = (
                          !requires { &M::cache_columns; } && !requires { &M::extend; }) ||
                      CachingBlock<M, L>;

}  // namespace detail

/// Checks that a block's optional members have the right types.
template <class M, class L>
consteval bool check_block_parts() {
  static_assert(detail::PlansOrNot<M, L>,
                "fsdp: a block has a plan that is no tiling::TilePlan plan(nn::Context<L>&) const");
  static_assert(detail::CachesOrNot<M, L>,
                "fsdp: a block has cache_columns or extend, and not both as a KV cache needs them: std::int64_t "
                "cache_columns() const, and extend(context, shared, weights, cache, x, y) const; see CachingBlock in "
                "tessera/fsdp/nn/module.hpp");
  static_assert(check_stages<M, L>());
  return true;
}

/// Checks that the optional members of a model's last unit have the right types.
template <class M, class L>
consteval bool check_head_parts() {
  static_assert(detail::PlansOrNot<M, L>,
                "fsdp: a head has a plan that is no tiling::TilePlan plan(nn::Context<L>&) const");
  static_assert(
      (!detail::has_logits<M>() && !detail::has_logits_columns<M>()) || GeneratingHead<M, L>,
      "fsdp: a head has logits or logits_columns, and not both as a model needs them to generate: "
      "logits(context, weights, x, out) const, and std::int64_t logits_columns() const; see GeneratingHead in "
      "tessera/fsdp/nn/module.hpp");
  return true;
}

/// Checks that the optional members of every kind have the right types.
template <class Block, class L>
inline constexpr bool parts_of_all_kinds = check_block_parts<Block, L>();
template <class... Kinds, class L>
inline constexpr bool parts_of_all_kinds<OneOf<Kinds...>, L> = (... && check_block_parts<Kinds, L>());

}  // namespace fsdp::nn
