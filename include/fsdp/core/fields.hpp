// SPDX-License-Identifier: Apache-2.0
/// @file
/// Structs of fields: an aggregate `Fields<V>` whose members are all of type V, nested aggregates included. One such
/// template names a unit's tensors once and carries their declarations, weights and gradients.
#pragma once

#include <array>
#include <bit>
#include <cstddef>

#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp {

/// Number of members of an aggregate of V.
template <template <class> class Fields, class V>
inline constexpr std::size_t field_count = sizeof(Fields<V>) / sizeof(V);

/// Returns the members of an aggregate as an array, in the order of their declaration.
template <template <class> class Fields, class V>
std::array<V, field_count<Fields, V>> flatten(const Fields<V>& fields) {
  return std::bit_cast<std::array<V, field_count<Fields, V>>>(fields);
}

/// Returns the aggregate from an array that `flatten` made.
template <template <class> class Fields, class V>
Fields<V> unflatten(const std::array<V, field_count<Fields, V>>& list) {
  return std::bit_cast<Fields<V>>(list);
}

/// A parameter as a struct of fields declares it. `name` is a string literal: the checkpoint name without the unit's
/// prefix or, after a leading '/', the full name (for weights that two units may share). A parameter that its owner's
/// settings switch off is `absent()`: its weight and its gradient are empty tensors.
struct Field {
  const char* name = "";
  Shape shape;
  Initial initial = {};
  Role role = shape.rank == 2 ? Role::matrix : Role::vector;
  bool decays = shape.rank == 2;  ///< as the members of Parameter that have these names
  bool joins_previous = false;
  bool adapter = false;

  /// Returns the placeholder for a parameter that is switched off.
  static Field absent() { return {.name = "", .shape = {0}}; }
  /// False for absent().
  bool present() const { return name[0] != '\0'; }
};

}  // namespace fsdp
