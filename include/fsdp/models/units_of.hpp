// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's units, which are the only list of its parameters, and checks of the optional members of a model and its
/// units. Not here: the concept of a model (model.hpp).
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/batch.hpp>
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

namespace fsdp {

namespace detail {
FSDP_HAS_MEMBER(ignored)
FSDP_HAS_MEMBER(copied)
}  // namespace detail

/// Checks that these members, if declared, have the right types.
template <class M>
consteval bool check_ignored_tensors() {
  static_assert(
      !detail::has_ignored<M>() ||
          requires(const M model, const std::string& name) {
            { model.ignored(name) } -> std::convertible_to<std::optional<std::string>>;
          },
      "fsdp: a model has an ignored that is no std::optional<std::string> ignored(const std::string& name) const, so "
      "that stored tensors which it does not use would be refused");
  static_assert(
      !detail::has_copied<M>() ||
          requires(const M model, const std::string& name) {
            { model.copied(name) } -> std::convertible_to<std::optional<std::string>>;
          },
      "fsdp: a model has a copied that is no std::optional<std::string> copied(const std::string& name) const, so "
      "that a stored copy with other values than its parameter would be taken");
  return true;
}

/// Returns the units of a model: "embedding", "block 0", ..., "head".
template <class Model>
std::vector<Unit> units_of(const Model& model) {
  using Local = typename Model::Local;
  using Entry = typename Model::Entry;
  const auto unit = []<class M>(std::string name, const M& module, const std::string& prefix, bool needs) {
    return unit_of<M::template FieldsOf>(std::move(name), module.parameters(), prefix, needs);
  };
  std::vector<Unit> units;
  require<InputError>(model.blocks() >= 0, "model: it has ", model.blocks(), " blocks; blocks() is at least 0");
  units.push_back(unit("embedding", model.entry(), "",
                       !nn::EntryWithoutWeightsInBackward<Entry, Local, nn::InputOf<typename Model::Batch, Local>>));
  for (int i = 0; i < model.blocks(); ++i)
    nn::visit_kind(model.block(i), [&]<class Block>(const Block& block) {
      units.push_back(
          unit("block " + std::to_string(i), block, model.prefix(i), !nn::BlockWithoutWeightsInBackward<Block, Local>));
    });
  units.push_back(unit("head", model.head(), "", true));
  return units;
}

/// Returns every parameter of a model once, in order.
template <class Model>
std::vector<Parameter> parameter_list(const Model& model) {
  return distinct_parameters(units_of(model));
}
/// Returns the number of elements of all parameters of a model.
template <class Model>
std::int64_t parameter_count(const Model& model) {
  return distinct_elements(units_of(model));
}
/// Returns the number of trained elements: those not frozen by UnitOptions, groups or adapters.
template <class Model>
std::int64_t trained_count(const Model& model) {
  return trained_elements(units_of(model), model.units());
}

}  // namespace fsdp
