// SPDX-License-Identifier: Apache-2.0
/// @file
/// The groups of a module, in one list for each kind. Groups differ in kind if their types differ: their element type
/// (PrecisionBy), or the placement of their optimizer state (PerUnit). Most modules have one kind.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/buffer/distributed_buffer.hpp>
#include <tessera/fsdp/module/parameter_group.hpp>
#include <tessera/fsdp/module/stack_mesh.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp {
namespace detail {

template <class Types, class Precision, class Across>
using Kind = ModuleTypes<typename Types::Comm, Precision, Across, typename Types::OptimizerSpace, Types::mesh_axes,
                         Types::axes_by_value, typename Types::Sequence>;

template <class Types, class Across>
using KindsOfPrecisions =
    std::conditional_t<has_float_weights<typename Types::Precision>,
                       std::tuple<Kind<Types, typename Types::Precision, Across>, Kind<Types, Fp32, Across>>,
                       std::tuple<Kind<Types, typename Types::Precision, Across>>>;

template <class Types, class Across = typename Types::OptimizerPlacement>
struct KindsOf : std::type_identity<KindsOfPrecisions<Types, Across>> {};
template <class Types>
struct KindsOf<Types, ByGroup>
    : std::type_identity<decltype(std::tuple_cat(std::declval<KindsOfPrecisions<Types, buffer::Replicate>>(),
                                                 std::declval<KindsOfPrecisions<Types, buffer::Shard>>()))> {};

}  // namespace detail

/// The kinds of groups of a module, as a tuple of ModuleTypes: for each placement of optimizer state the precision and,
/// if some weights are float, Fp32. A module with one kind has its own types as the kind.
template <class Types>
using GroupKinds = typename detail::KindsOf<Types>::type;

/// See the file comment. Groups are numbered in the order in which they were added.
template <class Kinds>
class GroupLists;
template <class... Kinds>
class GroupLists<std::tuple<Kinds...>> {
 public:
  using First = ParameterGroup<std::tuple_element_t<0, std::tuple<Kinds...>>>;
  static constexpr bool one_kind = sizeof...(Kinds) == 1;

  /// Adds a group of the first kind with this element type and placement of optimizer state.
  template <class... Arguments>
  void add(bool is_float, bool shards_across, Arguments&&... arguments) {
    std::size_t kind = 0;
    bool added = false;
    const auto try_add = [&]<class K>(std::vector<ParameterGroup<K>>& list) {
      using Group = ParameterGroup<K>;
      constexpr bool has_floats = std::is_same_v<typename K::Precision, Fp32> && !std::is_same_v<Group, First>;
      const bool fits = one_kind || ((has_floats == is_float) && Group::optimizer_sharded_across == shards_across);
      if (!added && fits) {
        places_.push_back({kind, list.size()});
        list.emplace_back(std::forward<Arguments>(arguments)...);
        added = true;
      }
      ++kind;
    };
    (try_add(std::get<std::vector<ParameterGroup<Kinds>>>(lists_)), ...);
  }
  std::size_t size() const { return places_.size(); }
  void clear() { lists_ = {}, places_.clear(); }

  /// Returns f(group) for the group with this number. f is called with different types, and returns the same type.
  /// @{
  template <class F>
  decltype(auto) visit(int index, F&& f) {
    return visit_in<0>(lists_, places_[static_cast<std::size_t>(index)], f);
  }
  template <class F>
  decltype(auto) visit(int index, F&& f) const {
    return visit_in<0>(lists_, places_[static_cast<std::size_t>(index)], f);
  }
  /// @}
  /// Calls f(group) for all groups, in their order.
  /// @{
  template <class F>
  void each(F f) {
    for (const Place& at : places_) visit_in<0>(lists_, at, f);
  }
  template <class F>
  void each(F f) const {
    for (const Place& at : places_) visit_in<0>(lists_, at, f);
  }
  /// @}
  /// The list of groups, if there is one kind.
  /// @{
  auto begin() requires one_kind { return std::get<0>(lists_).begin(); }
  auto end() requires one_kind { return std::get<0>(lists_).end(); }
  auto begin() const requires one_kind { return std::get<0>(lists_).begin(); }
  auto end() const requires one_kind { return std::get<0>(lists_).end(); }
  First& operator[](std::size_t index) requires one_kind { return std::get<0>(lists_)[index]; }
  const First& operator[](std::size_t index) const requires one_kind { return std::get<0>(lists_)[index]; }
  /// @}

 private:
  struct Place {
    std::size_t kind = 0, index = 0;
  };

  template <std::size_t kind, class Lists, class F>
  static decltype(auto) visit_in(Lists& lists, const Place& at, F& f) {
    if constexpr (kind + 1 < sizeof...(Kinds))
      if (at.kind != kind) return visit_in<kind + 1>(lists, at, f);
    return f(std::get<kind>(lists)[at.index]);
  }

  std::tuple<std::vector<ParameterGroup<Kinds>>...> lists_;
  std::vector<Place> places_;
};

}  // namespace fsdp
