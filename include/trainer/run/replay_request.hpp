// SPDX-License-Identifier: Apache-2.0
/// @file
/// A request to `tessera replay`, whether a run's record allows it, and the entries that a record has for it; and the
/// replay: one step of a recorded run is recomputed, its digests and tensors are written and compared with the run's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/step_tensors.hpp>
#include <tessera/trainer/run/arguments.hpp>
#include <tessera/trainer/run/resumed.hpp>

namespace fsdp::train {

class Engine;    // tessera/trainer/run/engine.hpp
class RunWatch;  // tessera/trainer/run/run_log.hpp

/// The step to recompute, and the outputs to write.
struct ReplayRequest {
  std::string folder = {};                  ///< the run's --checkpoint-dir
  std::int64_t step = 0;                    ///< number of the step; the first is 1
  std::optional<std::string> digests = {};  ///< file to append the step's digests to
  std::optional<std::string> tensors = {};  ///< new folder for tensors
  report::TensorChoice choice = {};         ///< selects the tensors
  /// Data to compare with: the run's own digests or metrics, or a folder of tensors.
  std::optional<std::string> against = {};
};

/// Returns all of a request, one value per line, to compare it between ranks.
std::string request_text(const ReplayRequest& request);

/// Throws InputError with one sentence about the first value that does not fit the others, or the run.
void validate(const ReplayRequest& request, const TrainOptions& options);

/// Throws InputError unless a run with the record `now` computes bit-identical results to the recorded run.
void require_same_bits(const RunRecord& recorded, const RunRecord& now);
/// The same for the number of ranks alone, which is known earlier.
void require_ranks(const RunRecord& recorded, int ranks);

/// Throws InputError unless the run used the data, order and batches of the later state during all steps between two
/// states, so that the record of the later state suffices to compute these steps.
void require_same_course(const checkpoint::TrainerState& before, const checkpoint::TrainerState& after);

/// For a step without an intact checkpoint before it: throws InputError unless no checkpoint exists at all
/// (`candidates` is 0) and the run began with random weights.
void require_random_start(const ReplayRequest& request, const RunRecord& recorded, std::int64_t candidates);

bool is_for_replay(std::string_view name);  ///< whether an entry of a record is only for replay

/// Returns the entries for replay. Paths are absolute. Omits values that trainer.json cannot contain: names that are
/// not UTF-8 or have several lines, and very many paths.
RunRecord replay_record(const TrainOptions& options, const PolicyTexts& policies);

/// Returns the values of an entry for replay, by the name of its flag; empty if it was not recorded.
std::vector<std::string> replay_values(const RunRecord& record, std::string_view flag);

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
