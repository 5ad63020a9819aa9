// SPDX-License-Identifier: Apache-2.0
/// @file
/// Models whose ranks compute whole sequences, and the choice between whole and shared sequences.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <tessera/fsdp/execution/run_shape.hpp>
#include <tessera/fsdp/models/model.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>

namespace fsdp {

/// A model with whole sequences: each rank computes its own sequences.
template <class Model>
struct WholeSequencesOf {
  /// A placeholder for the stages of a block's computation, which whole sequences do not have.
  template <class Module>
  struct Stages {
    static constexpr bool possible = false;  ///< stages are never computed
    /// Stores nothing.
    Stages(const Module&, const std::vector<typename Model::Block>&) {}
  };

  /// Returns the model's units.
  static std::vector<Unit> units_of(const Model& model, const RunShape&) { return fsdp::units_of(model); }
  /// Throws InputError for a shape that cuts attention into parts.
  static void check(const Model&, const RunShape& shape, std::int64_t /*ranks*/) {
    check_whole_sequences(shape.middle_parts);
  }
  /// Returns the number of parts of attention.
  template <class Tiling>
  static int middle_parts(const Model&, const Tiling&, const RunShape& shape, std::int64_t /*rows*/) {
    return std::max(shape.middle_parts, 1);
  }
};

namespace detail {

template <class Model, class Sequence>
struct SequencesOf {
  using Type = WholeSequencesOf<Model>;
};
template <class Model, class Sequence>
requires(Sequence::shards) struct SequencesOf<Model, Sequence> {
  static_assert(
      requires { typename Sequence::template Sharing<Model>; },
      "fsdp: a policy of sequences shards them, and has no template Sharing<Model>, which exchanges their rows; derive "
      "the policy from Ulysses");
  using Type = typename Sequence::template Sharing<Model>;
  static_assert(
      requires { sizeof(Type); },
      "fsdp: several ranks share each sequence of this stack (Ulysses), and what they exchange is compiled only by "
      "those who include it; include <tessera/fsdp/sequence/ulysses.hpp> before the stack's Training or Executor");
};

}  // namespace detail

/// How ranks share the sequences of a model: WholeSequencesOf, or the Sharing of the stack's policy.
template <class Model>
using SequencesOf = typename detail::SequencesOf<Model, typename Model::Stack::Sequence>::Type;

}  // namespace fsdp
