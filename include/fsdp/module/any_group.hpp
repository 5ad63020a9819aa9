// SPDX-License-Identifier: Apache-2.0
/// @file
/// A group of a module: a ParameterGroup or, if groups differ in element type (PrecisionBy) or in the placement of
/// optimizer state (PerUnit), a variant of the possible ones.
#pragma once

#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/fsdp/buffer/distributed_buffer.hpp>
#include <tessera/fsdp/module/parameter_group.hpp>
#include <tessera/fsdp/module/stack_mesh.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp {
namespace detail {

template <class T, class Precision, class Across>
using GroupIn = ParameterGroup<ModuleTypes<typename T::Comm, Precision, Across, typename T::OptimizerSpace,
                                           T::mesh_axes, T::axes_by_value, typename T::Sequence>>;

/// The groups with the placement `First` of optimizer state, and with those in `Rest`.
template <class T, class First, class... Rest>
struct GroupOf {
  using P = typename T::Precision;
  static constexpr bool has_floats = has_float_weights<P>;
  using FirstType = GroupIn<T, P, First>;
  using Type = std::conditional_t<
      has_floats, std::variant<FirstType, GroupIn<T, Fp32, First>, GroupIn<T, P, Rest>..., GroupIn<T, Fp32, Rest>...>,
      std::conditional_t<sizeof...(Rest) == 0, FirstType, std::variant<FirstType, GroupIn<T, P, Rest>...>>>;
};
template <class T>
struct GroupOf<T, ByGroup> : GroupOf<T, buffer::Replicate, buffer::Shard> {};

}  // namespace detail

/// The group of a module with these ModuleTypes, and its first alternative.
/// @{
template <class Types>
using AnyGroup = typename detail::GroupOf<Types, typename Types::OptimizerPlacement>::Type;
template <class Types>
using FirstGroup = typename detail::GroupOf<Types, typename Types::OptimizerPlacement>::FirstType;
/// @}

/// Returns f(group), which has the same type for all alternatives.
template <class Group, class F>
decltype(auto) with_group(Group& group, F&& f) {
  if constexpr (requires { group.index(); })
    return std::visit(std::forward<F>(f), group);
  else
    return f(group);
}

/// Adds a group to a list: the alternative with this element type and placement of optimizer state.
/// @{
template <class Types, class... Arguments>
void add_group(std::vector<ParameterGroup<Types>>& list, bool, bool, Arguments&&... arguments) {
  list.emplace_back(std::forward<Arguments>(arguments)...);
}
template <class First, class... Rest, class... Arguments>
void add_group(std::vector<std::variant<First, Rest...>>& list, bool is_float, bool shards_across,
               Arguments&&... arguments) {
  const auto try_add = [&]<class G>(std::type_identity<G>) {
    constexpr bool differs = !std::is_same_v<typename G::Compute, typename First::Compute>;
    if (differs == is_float && G::optimizer_sharded_across == shards_across)
      list.emplace_back(std::in_place_type<G>, std::forward<Arguments>(arguments)...);
  };
  try_add(std::type_identity<First>());
  (try_add(std::type_identity<Rest>()), ...);
}
/// @}

}  // namespace fsdp
