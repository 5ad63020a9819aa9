// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tracks which unit's input each device buffer contains while a schedule runs, if inputs are offloaded to host memory.
///
/// A buffer contains an input from the computation that produces it, or from its fetch, until the forward that reads
/// it; an input that backward reads in place stays until that backward. Copies are not tracked here: computations wait
/// for them (event_order.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// The unit that occupies each device buffer. `problem` must outlive this object.
class InputHolders {
 public:
  static constexpr int no_unit = -1;  ///< sentinel for a free buffer

  /// Starts at the beginning of a pass: all buffers are free.
  constexpr explicit InputHolders(const Problem& problem)
      : problem_(problem), in_forward_(buffers_of_inputs(problem)) {}

  /// Whether the pass offloads any input.
  constexpr bool any() const { return !in_forward_.empty(); }
  /// Returns the buffer of a unit's input in forward; -1 if it has no buffer.
  constexpr int in_forward(int unit) const { return any() ? in_forward_[static_cast<std::size_t>(unit)] : -1; }
  /// Returns the unit whose input is in a buffer, or no_unit.
  constexpr int holder(int buffer) const { return holders_[static_cast<std::size_t>(buffer)]; }
  /// Returns a free buffer; -1 if no buffer is free.
  constexpr int free() const {
    for (int buffer = 0; buffer < input_buffers; ++buffer)
      if (holder(buffer) == no_unit) return buffer;
    return -1;
  }

  /// Records a computation of which all stages have run: its input is consumed, unless its backward needs it in place,
  /// and its output is the next unit's input.
  constexpr void compute(const Task& task) {
    if (!any() || !problem_.ends(task)) return;
    const int last_block = static_cast<int>(problem_.units.size()) - 2;
    if (task.action != Action::forward || task.index != last_block) leave(task.index);
    if (task.action == Action::forward && in_forward(task.index + 1) >= 0)
      take(in_forward(task.index + 1), task.index + 1);
  }
  /// Records that a unit's input was fetched into a buffer.
  constexpr void take(int buffer, int unit) { holders_[static_cast<std::size_t>(buffer)] = unit; }

 private:
  constexpr void leave(int unit) {
    for (int& holder : holders_)
      if (holder == unit) holder = no_unit;
  }

  const Problem& problem_;
  std::vector<int> in_forward_;  ///< see buffers_of_inputs
  std::array<int, input_buffers> holders_ = {no_unit, no_unit};
};

}  // namespace fsdp::sharding
