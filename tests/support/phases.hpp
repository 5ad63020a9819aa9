// SPDX-License-Identifier: Apache-2.0
/// @file
/// Phases of a training step, told by the collectives that stand in them: where a test makes a rank fail.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include <tessera/comm/monitor.hpp>

namespace fsdp::test {

inline constexpr std::string_view phases[] = {"gather", "forward", "backward", "reduce", "optimizer", "checkpoint"};

/// How often `record` must come for the phase to be the one that is meant: of the second step, but for a checkpoint.
/// Unit 2's weights are gathered between the forwards of units 0 and 1, and between the backwards of 4 and 3.
inline int times_until(std::string_view phase, const comm::Record& record) {
  using comm::Op;
  const auto gathers = [&](int unit) {
    return record.op == Op::all_gather && record.label == comm::Label{"weights", unit};
  };
  if (phase == "gather") return gathers(0) ? 2 : 0;
  if (phase == "forward") return gathers(2) ? 3 : 0;
  if (phase == "backward") return gathers(2) ? 4 : 0;
  if (phase == "reduce") return record.op == Op::reduce_scatter && record.label.unit == 1 ? 2 : 0;
  if (phase == "optimizer") return record.label.what == "loss and gradient norm" ? 2 : 0;
  return record.label.what == "checkpoint" ? 1 : 0;
}

/// For RunOptions::before: `fail` is called on one rank when the phase is reached.
inline std::function<void(int, const comm::Record&)> failing(std::string_view phase, int failing_rank,
                                                             std::function<void()> fail) {
  return [phase, failing_rank, fail = std::move(fail), times = 0](int rank, const comm::Record& record) mutable {
    const int wanted = rank == failing_rank ? times_until(phase, record) : 0;
    if (wanted > 0 && ++times == wanted) fail();
  };
}

}  // namespace fsdp::test
