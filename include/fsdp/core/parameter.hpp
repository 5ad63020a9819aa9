// SPDX-License-Identifier: Apache-2.0
/// @file
/// The declaration of a sharded tensor: its name, shape and initial values; stand-alone, or as a field of a struct.
///
/// A struct of fields is an aggregate `Fields<V>` whose members are all of type V, including nested aggregates. One
/// such template states the names of a unit's tensors once and contains their declarations, weights or gradients.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp {

/// Initial values of a parameter.
struct Initial {
  /// Kinds of initial values.
  enum class Kind : std::uint8_t { normal, zeros, ones };
  Kind kind = Kind::normal;
  double deviation = 0.02;  ///< standard deviation of normal values; their mean is 0

  /// Normally distributed values with mean 0.
  static constexpr Initial normal(double deviation) { return {Kind::normal, deviation}; }
  static const Initial zeros, ones;

  friend constexpr bool operator==(const Initial&, const Initial&) = default;
};
inline constexpr Initial Initial::zeros{Kind::zeros, 0};
inline constexpr Initial Initial::ones{Kind::ones, 0};

/// The purpose of a parameter; optimizers may treat each kind differently.
enum class Role : std::uint8_t {
  matrix,  ///< weight of a linear layer
  table,   ///< rows that are looked up, or that compute the scores of a vocabulary
  vector,  ///< norm or bias
};
/// Returns "matrix", "table" or "vector"; "of no kind" for any other value.
std::string name_of(Role role);

/// The settings that a parameter group (OptimizerGroup) changes in an optimizer's steps of a parameter.
struct StepOptions {
  double lr = 1;  ///< factor on the learning rate of the step
  /// Replaces the optimizer's weight decay, whether or not the parameter decays.
  std::optional<double> weight_decay = {};
  double clip = 0;  ///< largest norm of the gradients of `clip_group`; 0: no clipping. Ignored for clip_group 0
  /// Parameters with the same number are clipped together; 0: parameters that no group clips separately.
  int clip_group = 0;

  friend constexpr bool operator==(const StepOptions&, const StepOptions&) = default;
};

/// Throws InputError "`where`: ..." unless a safetensors file can contain a tensor of this name: 1 to 512 bytes of
/// UTF-8 without control characters, and not the key of the file's metadata.
void require_tensor_name(std::string_view name, std::string_view where);

/// A tensor of a unit. Its name is its identity: the same name in two units means one tensor (a tied weight), which is
/// gathered, reduced and stored once.
struct Parameter {
  std::string name;  ///< name in checkpoints
  Shape shape;
  Initial initial = {};
  Role role = shape.rank == 2 ? Role::matrix : Role::vector;
  bool decays = shape.rank == 2;  ///< whether weight decay applies
  /// Whether one matmul uses this parameter and the previous one together, as one taller matrix
  /// (tessera/fsdp/nn/projection.hpp).
  bool joins_previous = false;
  /// Whether this parameter belongs to an adapter. If any unit has such a parameter, all others are frozen
  /// (tessera/fsdp/nn/low_rank.hpp).
  bool adapter = false;
  /// Whether the unit's module also computes with this weight in float if its other weights are in 16 bits
  /// (PrecisionBy).
  bool may_be_float = false;
  /// Number of consecutive elements, counted from the first, that buffer::Blocks stores on one rank, such as the rows
  /// of an attention head; it divides the number of all elements. 0 for the layout's own block.
  std::int64_t block = 0;
  /// The name that a tied weight would have in this unit if it were not tied: patterns (TensorPattern) match it too.
  std::string tied_as = {};
  StepOptions step = {};  ///< set from UnitOptions::groups by the module that the unit is passed to

  /// Returns the parameter's weight decay for an optimizer with this constant.
  double decay_of(double weight_decay) const { return step.weight_decay.value_or(decays ? weight_decay : 0.0); }
};

/// Number of members of an aggregate Fields<V>.
template <template <class> class Fields, class V>
inline constexpr std::size_t field_count = sizeof(Fields<V>) / sizeof(V);

/// Returns the members of an aggregate as an array, in the order of their declaration.
template <template <class> class Fields, class V>
std::array<V, field_count<Fields, V>> flatten(const Fields<V>& fields) {
  return std::bit_cast<std::array<V, field_count<Fields, V>>>(fields);
}

/// Returns the aggregate from an array made by `flatten`.
template <template <class> class Fields, class V>
Fields<V> unflatten(const std::array<V, field_count<Fields, V>>& list) {
  return std::bit_cast<Fields<V>>(list);
}

/// A parameter as it is declared in a struct of fields. `name` is a string literal: the checkpoint name without the
/// unit's prefix or, after a leading '/', the full name (for weights that two units may share). A parameter that its
/// owner's settings disable is `absent()`: its weight and its gradient are empty tensors.
struct Field {
  const char* name = "";
  Shape shape;
  Initial initial = {};
  Role role = shape.rank == 2 ? Role::matrix : Role::vector;
  bool decays = shape.rank == 2;  ///< see the members of Parameter with the same names
  bool joins_previous = false;
  bool adapter = false;
  bool may_be_float = false;
  std::int64_t block = 0;
  const char* tied_as = "";

  static Field absent() { return {.name = "", .shape = {0}}; }  ///< placeholder for a disabled parameter
  bool present() const { return name[0] != '\0'; }              ///< false for absent()
};

}  // namespace fsdp

// Compiled into the library.
FSDP_LIST(fsdp::Parameter)
FSDP_LIST(fsdp::Field)
