// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sequences that several ranks share, for stacks with Ulysses: include it before such a stack's Training or Executor.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/fsdp/execution/step_size.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sequence/instances.hpp>
#include <tessera/fsdp/sequence/middle_parts.hpp>
#include <tessera/fsdp/sequence/sequence_stages.hpp>
#include <tessera/fsdp/sequence/shared_sequences.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>

namespace fsdp {

/// How several ranks share each sequence of a model. Blocks that do not define stages are computed whole; `check`
/// throws InputError if ranks are to share their sequences.
template <class Model>
struct SharedSequences {
  template <class Module>
  using Stages = SequenceStages<Module>;

  /// See staged_units_of, check_shared_sequences and plan::middle_parts.
  /// @{
  static std::vector<Unit> units_of(const Model& model, const RunShape& shape) { return staged_units_of(model, shape); }
  static void check(const Model& model, const RunShape& shape, std::int64_t ranks) {
    check_shared_sequences(model, shape, ranks);
  }
  template <class Tiling>
  static int middle_parts(const Model& model, const Tiling& tiling, const RunShape& shape, std::int64_t rows) {
    return plan::middle_parts(model, tiling, shape.size, rows);
  }
  /// @}
};

}  // namespace fsdp
