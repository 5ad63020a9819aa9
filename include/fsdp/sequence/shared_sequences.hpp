// SPDX-License-Identifier: Apache-2.0
/// @file
/// Models whose sequences several ranks share: the run-time checks (Stack and check_model check the types), and the
/// units.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/execution/run_shape.hpp>
#include <tessera/fsdp/models/model.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/one_of.hpp>
#include <tessera/fsdp/sequence/staged_block.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>

namespace fsdp {

/// Throws InputError unless a model's entry or head computes each row from that row alone, which it declares with
/// `static constexpr bool row_wise = true`. `what`: "entry" or "head", for the message.
template <class Unit>
void check_row_wise(std::string_view what, int sharing) {
  if constexpr (requires { requires Unit::row_wise; }) return;
  throw InputError(
      message("sequence: ", sharing, " ranks are to share each sequence, and this model's ", what,
              " does not say that each row is computed from that row alone (static constexpr bool row_wise "
              "= true); its rows would not know where they begin; take 1 rank"));
}

/// Returns the number of parts of attention; 1 if no dry run has determined it.
inline int parts_of(const RunShape& shape) { return shape.middle_parts == 0 ? 1 : shape.middle_parts; }

/// Throws InputError unless shape.ranks_per_sequence of `ranks` ranks can share each of the model's sequences: entry
/// and head are row-wise, all blocks define stages, the ranks and parts divide their heads, and each rank has a row.
/// ShardedModule checks the number of ranks and the stack.
template <class Model>
void check_shared_sequences(const Model& model, const RunShape& shape, std::int64_t ranks) {
  const int sharing = shape.ranks_per_sequence;
  if (sharing == 1) return check_whole_sequences(shape.middle_parts);
  check_sequence_length(shape.sequence_length, sharing);
  check_row_wise<typename Model::Entry>("entry", sharing);
  check_row_wise<typename Model::Head>("head", sharing);
  for (int i = 0; i < model.blocks(); ++i)
    nn::visit_kind(model.block(i), [&]<class Block>(const Block& block) {
      using nn::staged;
      if constexpr (requires { staged(block).shares(); }) {
        const std::int64_t heads = staged(block).shares();
        check_heads_of_sequence(heads, sharing, ranks);
        check_middle_parts(heads / sharing, parts_of(shape));
      } else {
        throw InputError(message("sequence: ", sharing, " ranks are to share each sequence, and block ", i,
                                 " of this model does not state which of its stages mix tokens; state them ",
                                 "(docs/joints/module.md), or take 1 rank"));
      }
    });
}

/// Returns the units of a model, with the stages of its blocks if several ranks share a sequence. Throws InputError for
/// a number of parts that does not divide a rank's heads, since the lists of stages are created before
/// check_shared_sequences runs.
template <class Model>
std::vector<Unit> staged_units_of(const Model& model, const RunShape& shape) {
  std::vector<Unit> units = units_of(model);
  if (shape.ranks_per_sequence == 1) return units;
  for (int i = 0; i < model.blocks(); ++i)
    nn::visit_kind(model.block(i), [&](const auto& block) {
      using nn::staged;
      if constexpr (requires { staged(block).shares(); })
        if (const std::int64_t heads = staged(block).shares(), sharing = shape.ranks_per_sequence;
            sharing > 0 && heads % sharing == 0)
          check_middle_parts(heads / sharing, parts_of(shape));
      units[static_cast<std::size_t>(i + 1)].stages = {.parts = parts_of(shape), .replays = nn::replays(block)};
    });
  return units;
}

}  // namespace fsdp
