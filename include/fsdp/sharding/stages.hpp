// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stages of a unit whose sequences are shared by several ranks, and the exchanges between them.
///
/// What comes before and after a block's middle (attention) works on this rank's rows; the middle works on all rows of
/// this rank's heads, in one or more parts, a few heads at a time. An exchange over the ranks that share a sequence
/// lies between. Two parts are under way at a time, so that the next exchange can run beside the present middle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fsdp::sharding {

/// How a unit's computations are cut.
struct Stages {
  int parts = 0;         ///< of the middle; 0: the unit has no stages, and nothing is exchanged
  bool replays = false;  ///< backward first computes again what forward did not keep, exchanges included
  friend constexpr bool operator==(const Stages&, const Stages&) = default;
};

/// What a stage computes, or an exchange moves: first forward's, then those of backward alone.
enum class Step : std::uint8_t {
  before,    ///< of own rows: what the middle reads
  to_heads,  ///< exchange: all rows of own heads
  between,   ///< the middle
  to_rows,   ///< exchange: own rows of all heads
  after,     ///< of own rows: the rest of the unit
  after_backward,
  gradient_to_heads,
  between_backward,
  gradient_to_rows,
  before_backward,
};

/// Whether it is an exchange.
constexpr bool exchanges(Step step) {
  return step == Step::to_heads || step == Step::to_rows || step == Step::gradient_to_heads ||
         step == Step::gradient_to_rows;
}

/// Returns the step's name, as `--print-schedule` writes it.
constexpr std::string_view name_of(Step step) {
  switch (step) {
    case Step::before: return "before";
    case Step::to_heads: return "to-heads";
    case Step::between: return "between";
    case Step::to_rows: return "to-rows";
    case Step::after: return "after";
    case Step::after_backward: return "after-backward";
    case Step::gradient_to_heads: return "gradient-to-heads";
    case Step::between_backward: return "between-backward";
    case Step::gradient_to_rows: return "gradient-to-rows";
    case Step::before_backward: return "before-backward";
  }
  return "?";
}

/// One stage, or one exchange.
struct Stage {
  Step step = Step::before;  ///< what is computed, or moved
  int part = 0;              ///< of the middle; `after` and `after_backward` are of all parts
  bool backward = false;     ///< belongs to the unit's backward
  friend constexpr bool operator==(const Stage&, const Stage&) = default;
};

/// Returns the number of the first stage of a unit's backward in the list of `stages_of`, and the length of that list.
/// @{
constexpr int first_backward_stage(const Stages& stages) { return 4 * stages.parts + 1; }
constexpr int stage_count(const Stages& stages) {
  return first_backward_stage(stages) + 4 * stages.parts * (stages.replays ? 2 : 1) + 1;
}
/// @}

namespace detail {

/// Adds the stages up to the middle's last exchange.
constexpr void add_middle(std::vector<Stage>& list, int parts, bool backward) {
  const auto begin = [&](int part) {
    list.push_back({Step::before, part, backward});
    list.push_back({Step::to_heads, part, backward});
  };
  begin(0);
  for (int part = 0; part < parts; ++part) {
    if (part + 1 < parts) begin(part + 1);
    list.push_back({Step::between, part, backward});
    list.push_back({Step::to_rows, part, backward});
  }
}

}  // namespace detail

/// Returns a unit's stages and exchanges: those of forward, then those of backward, in the order of computation. A
/// task's `stage` is a number in this list. An exchange stands right behind the stages that allow it.
constexpr std::vector<Stage> stages_of(const Stages& stages) {
  std::vector<Stage> list;
  if (stages.parts == 0) return list;
  list.reserve(static_cast<std::size_t>(stage_count(stages)));
  detail::add_middle(list, stages.parts, false);
  list.push_back({Step::after, 0, false});
  if (stages.replays) detail::add_middle(list, stages.parts, true);
  list.push_back({Step::after_backward, 0, true});
  list.push_back({Step::gradient_to_heads, 0, true});
  for (int part = 0; part < stages.parts; ++part) {
    if (part + 1 < stages.parts) list.push_back({Step::gradient_to_heads, part + 1, true});
    list.push_back({Step::between_backward, part, true});
    list.push_back({Step::gradient_to_rows, part, true});
    if (part > 0) list.push_back({Step::before_backward, part - 1, true});
  }
  list.push_back({Step::before_backward, stages.parts - 1, true});
  return list;
}

/// Whether a stage makes what an exchange moves.
constexpr bool sends_by(const Stage& stage, const Stage& exchange) {
  if (stage.backward != exchange.backward) return false;
  if (exchange.step == Step::gradient_to_heads) return stage.step == Step::after_backward;
  return stage.part == exchange.part && static_cast<int>(stage.step) + 1 == static_cast<int>(exchange.step);
}

/// Whether a stage reads what an exchange moves.
constexpr bool reads_from(const Stage& stage, const Stage& exchange) {
  if (stage.backward != exchange.backward || !exchanges(exchange.step)) return false;
  if (exchange.step == Step::to_rows) return stage.step == (exchange.backward ? Step::after_backward : Step::after);
  return stage.part == exchange.part && static_cast<int>(stage.step) == static_cast<int>(exchange.step) + 1;
}

}  // namespace fsdp::sharding
