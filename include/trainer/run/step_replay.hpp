// SPDX-License-Identifier: Apache-2.0
/// @file
/// Recomputes one step of a recorded run, writes its digests and tensors, and compares them with the run's results.
#pragma once

#include <optional>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/replay_request.hpp>
#include <tessera/trainer/run/run_log.hpp>

namespace fsdp::train {

/// Recomputes a step of a run, whose checkpoints are only read. With pieces, the step is bit-identical on any
/// number of ranks; without pieces, the replay uses the ranks and the strategy of the run. `options`: those of the run,
/// with its data and its threads, and without saving or validation. `after`: the state of the later checkpoint that
/// contains `recorded`, if it is from a checkpoint. Rank 0 writes and prints the results. Throws InputError unless the
/// engine, which must be one for replays, computes bit-identical results to the run's, and if --against does not
/// contain the step. Returns the exit status: 0; 1 if the run computed something else; or 128 + the signal that ended
/// the replay. Collective.
[[nodiscard]] int replay_step(Engine& engine, const ReplayRequest& request, const TrainOptions& options,
                              const RunWatch& watch, const RunRecord& recorded,
                              const std::optional<checkpoint::TrainerState>& after);

}  // namespace fsdp::train
