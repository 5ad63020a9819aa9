// SPDX-License-Identifier: Apache-2.0
/// @file
/// Phases of a training step in which a test makes a rank fail, recognised by their collectives.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include <tessera/comm/monitor.hpp>

namespace fsdp::test {

inline constexpr std::string_view phases[] = {"gather", "forward", "backward", "reduce", "optimizer", "checkpoint"};

/// The number of matching collectives until the phase is reached in the second step, or at the first checkpoint; 0 if
/// `record` does not belong to the phase. Unit 2 is unsharded between the forwards of units 0 and 1, and between the
/// backwards of units 4 and 3.
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

/// A callback for RunOptions::before that calls `fail` on one rank when the phase is reached.
inline std::function<void(int, const comm::Record&)> failing(std::string_view phase, int failing_rank,
                                                             std::function<void()> fail) {
  return [phase, failing_rank, fail = std::move(fail), times = 0](int rank, const comm::Record& record) mutable {
    const int wanted = rank == failing_rank ? times_until(phase, record) : 0;
    if (wanted > 0 && ++times == wanted) fail();
  };
}

}  // namespace fsdp::test
