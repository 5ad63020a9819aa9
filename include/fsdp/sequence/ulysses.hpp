// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sequences that several ranks share, for stacks with Ulysses: include it before such a stack's Training or Executor.
/// The run-time checks (Stack and check_model check the types), the units, and the number of parts of attention.
///
/// The bytes in flight between ranks grow with rows times heads. A tiling cuts rows. If it states a budget, heads are
/// cut here so that no more bytes are in flight than if the tiling cut the rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/execution/step_size.hpp>
#include <tessera/fsdp/models/units_of.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/one_of.hpp>
#include <tessera/fsdp/nn/stages.hpp>
#include <tessera/fsdp/sequence/sequence_stages.hpp>
#include <tessera/fsdp/sequence/staged_block.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/tiling/policies.hpp>
#include <tessera/tiling/problem.hpp>

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
inline int parts_of(const StepSize& size) { return size.middle_parts == 0 ? 1 : size.middle_parts; }

/// Throws InputError unless StepSize::ranks_per_sequence of `ranks` ranks can share each of the model's sequences:
/// entry and head are row-wise, all blocks define stages, the ranks and parts divide their heads, and each rank has a
/// row. ShardedModule checks the number of ranks and the stack.
template <class Model>
void check_shared_sequences(const Model& model, const RunShape& shape, std::int64_t ranks) {
  const int sharing = shape.size.ranks_per_sequence;
  if (sharing == 1) return check_whole_sequences(shape.size.middle_parts);
  check_sequence_length(shape.size.sequence_length, sharing);
  check_row_wise<typename Model::Entry>("entry", sharing);
  check_row_wise<typename Model::Head>("head", sharing);
  for (int i = 0; i < model.blocks(); ++i)
    nn::visit_kind(model.block(i), [&]<class Block>(const Block& block) {
      using nn::staged;
      if constexpr (requires { staged(block).shares(); }) {
        const std::int64_t heads = staged(block).shares();
        check_heads_of_sequence(heads, sharing, ranks);
        check_middle_parts(heads / sharing, parts_of(shape.size));
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
  if (shape.size.ranks_per_sequence == 1) return units;
  for (int i = 0; i < model.blocks(); ++i)
    nn::visit_kind(model.block(i), [&](const auto& block) {
      using nn::staged;
      if constexpr (requires { staged(block).shares(); })
        if (const std::int64_t heads = staged(block).shares(), sharing = shape.size.ranks_per_sequence;
            sharing > 0 && heads % sharing == 0)
          check_middle_parts(heads / sharing, parts_of(shape.size));
      units[static_cast<std::size_t>(i + 1)].stages = {.parts = parts_of(shape.size), .replays = nn::replays(block)};
    });
  return units;
}

namespace plan {

/// Cuts `heads` heads of `rows` rows into the fewest parts such that two parts, the number in flight at a time, need no
/// more memory than `tile_rows` rows of all heads. Returns that number of parts, or `heads` if no number suffices.
/// Returns 1 for up to two heads, since two parts would then hold all of them. `allows(parts)`: whether the heads may
/// be cut into `parts` parts.
template <class Allows>
int parts_like_tiles(std::int64_t heads, std::int64_t rows, std::int64_t tile_rows, Allows allows) {
  if (tile_rows >= rows || heads <= 2) return 1;
  for (std::int64_t parts = 2; parts < heads; ++parts)
    if (heads % parts == 0 && 2 * ceil_divide(rows, parts) <= tile_rows && allows(parts))
      return static_cast<int>(parts);
  return static_cast<int>(heads);
}

/// Returns size.middle_parts, or if it is 0 the number that the tiling determines for micro-batches of `rows` rows:
/// one part unless it states a budget. Heads are not separated if common inputs would then be exchanged twice. Returns
/// 1 for a model that cannot share sequences; check_shared_sequences reports the reason when the model is built.
template <class Model, tiling::Tiling Tiling>
int middle_parts(const Model& model, const Tiling& tiling, const StepSize& size, std::int64_t rows) {
  if (size.middle_parts != 0 || size.ranks_per_sequence == 1) return std::max(size.middle_parts, 1);
  if (!tiling::states_budget(tiling)) return 1;
  // Calls body(block, heads) for each block that defines its stages, with its heads on the first rank.
  const auto for_each_staged = [&](auto body) {
    for (int i = 0; i < model.blocks(); ++i)
      nn::visit_kind(model.block(i), [&](const auto& of_model) {
        using nn::staged;
        if constexpr (requires { staged(of_model).shares(); })
          body(staged(of_model), nn::HeadRange{0, staged(of_model).shares() / size.ranks_per_sequence});
      });
  };
  // Returns the number of columns of a range: of its own inputs, and of common inputs.
  const auto columns_of = []<class Block>(const Block& block, const nn::HeadRange& range) {
    const auto columns = block.input_columns(range);
    const auto common = columns.end() - nn::common_inputs<Block>();
    return std::pair(std::accumulate(columns.begin(), common, std::int64_t{0}),
                     std::accumulate(common, columns.end(), std::int64_t{0}));
  };
  std::int64_t heads = 0, bytes = 0;  // heads of a rank; bytes in flight per row of all heads
  for_each_staged([&](const auto& block, const nn::HeadRange& own) {
    heads = std::gcd(heads, own.size());
    if (own.size() == 0) return;
    // The inputs in both placements (own rows and own heads), and the output in own heads.
    const std::int64_t columns = 2 * columns_of(block, own).first + block.output_columns(own);
    bytes = std::max(bytes, columns * std::int64_t{sizeof(typename Model::Stack::Local::Compute)});
  });
  if (heads == 0) return 1;
  const tiling::Problem problem{.tokens = rows, .tile_bytes_per_token = bytes, .traffic_per_tile = 1};
  std::optional<tiling::TilePlan> tiles;
  try {
    tiles = tiling.plan(problem);
  } catch (const InputError&) {  // no tile of rows is short enough: use the largest number of parts
  }
  const std::int64_t tile_rows = tiles ? tiling::checked(problem, *std::move(tiles)).longest_tile() : 1;
  return parts_like_tiles(heads, rows, tile_rows, [&](std::int64_t parts) {
    bool allowed = true;
    for_each_staged([&](const auto& block, const nn::HeadRange& own) {
      const nn::HeadRange part{0, own.size() / parts, 0, own.size()};
      allowed = allowed && columns_of(block, part).second == columns_of(block, own).second;
    });
    return allowed;
  });
}

}  // namespace plan

/// How several ranks share each sequence of a model. Blocks that do not define stages are computed whole; `check`
/// throws InputError if ranks are to share their sequences.
template <class Model>
struct SharedSequences {
  template <class Module>
  using Stages = std::conditional_t<nn::all_kinds_are_staged<typename Model::Block, typename Module::Local>,
                                    SequenceStages<Module>, typename WholeSequencesOf<Model>::template Stages<Module>>;

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
