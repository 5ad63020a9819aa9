// SPDX-License-Identifier: Apache-2.0
/// @file
/// What is declared of a tensor that is sharded: its name, shape and initial values.
#pragma once

#include <cstdint>
#include <string>

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
};

}  // namespace fsdp
