// SPDX-License-Identifier: Apache-2.0
/// @file
/// What is declared of a tensor that is sharded: its name, shape and initial values; alone, or as a field of a struct.
///
/// A struct of fields is an aggregate `Fields<V>` whose members are all of type V, nested aggregates included. One such
/// template names a unit's tensors once and carries their declarations, weights and gradients.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp {

/// Initial values of a parameter.
struct Initial {
  /// Kinds of initial values.
  enum class Kind : std::uint8_t { normal, zeros, ones };
  Kind kind = Kind::normal;
  double deviation = 0.02;  ///< standard deviation of normal values; their mean is 0

  /// Normal values of mean 0.
  static constexpr Initial normal(double deviation) { return {Kind::normal, deviation}; }
  static const Initial zeros, ones;

  friend constexpr bool operator==(const Initial&, const Initial&) = default;
};
inline constexpr Initial Initial::zeros{Kind::zeros, 0};
inline constexpr Initial Initial::ones{Kind::ones, 0};

/// What a parameter is for; optimizers may treat each kind in its own way.
enum class Role : std::uint8_t {
  matrix,  ///< of a linear layer
  table,   ///< rows that are looked up, or that score a vocabulary
  vector,  ///< norms, biases
};

/// What groups of parameters change in an optimizer's steps of a parameter (OptimizerGroup).
struct StepOptions {
  double lr = 1;                            ///< factor of the step's learning rate
  std::optional<double> weight_decay = {};  ///< replaces the optimizer's constant, whether or not the parameter decays
  double clip = 0;     ///< largest norm of the gradients of `clip_group`; 0: no clipping. Not used by group 0
  int clip_group = 0;  ///< parameters of one number are clipped together; 0: those that no group clips apart

  friend constexpr bool operator==(const StepOptions&, const StepOptions&) = default;
};

/// A tensor of a unit. Its name is its identity: the same name in two units is one tensor (a tied weight), which is
/// gathered, reduced and stored once.
struct Parameter {
  std::string name;  ///< in checkpoints
  Shape shape;
  Initial initial = {};
  Role role = shape.rank == 2 ? Role::matrix : Role::vector;
  bool decays = shape.rank == 2;  ///< whether weight decay applies
  /// Whether one matmul multiplies it together with the parameter before it, as one taller matrix
  /// (tessera/fsdp/nn/projection.hpp).
  bool joins_previous = false;
  /// Whether it belongs to an adapter. If any unit has such a parameter, all others are frozen
  /// (tessera/fsdp/nn/low_rank.hpp).
  bool adapter = false;
  StepOptions step = {};  ///< set by the module that the unit is given to, from UnitOptions::groups

  /// Returns the parameter's weight decay by an optimizer that has this constant.
  double decay_of(double weight_decay) const { return step.weight_decay.value_or(decays ? weight_decay : 0.0); }
};

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

// Compiled into the library.
extern template class std::vector<fsdp::Parameter>;
extern template class std::vector<fsdp::Field>;
