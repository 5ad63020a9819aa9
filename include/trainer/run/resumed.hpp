// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compares a resumed run's options with those of the run that saved the checkpoint.
///
/// Differences that change which data later steps see are refused: batch size, seed, sequence length, data. Every other
/// difference that changes results is reported in one line.
///
/// A run whose steps are cut into as many pieces as those of the checkpoint (Reproducible) continues bit for bit, on
/// any number of ranks, and says so. Differences that would change the last bits of every step are refused: threads,
/// instruction set, library, build, precision, tile plans.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/flags/flag_set.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// The options of a run that change its results: text by name. Stored in trainer.json.
using RunRecord = std::map<std::string, std::string>;

/// Returns an entry of a record; empty if it has none of this name.
std::string value_of(const RunRecord& record, const std::string& name);

/// Returns the record of a run's options: the texts of the flags on which results depend (Effect::results).
RunRecord record_of(TrainOptions options);
/// Adds an optimizer's name and constants to the record.
void add_optimizer(RunRecord& record, std::string_view name, const ConfigValues& constants);

/// Adds the values of the model's config to the record; keeps what has the same name there.
void add_config(RunRecord& record, const ConfigValues& values);

/// How a run resumes.
struct Resumed {
  data::Position position = {};         ///< where reading of the data continues
  std::vector<std::string> lines = {};  ///< for the user: which step was resumed, and each difference
  std::string warning = {};             ///< that the learning rate rises; empty if it does not
  std::string identity = {};            ///< of the run that continues
};

/// Compares a checkpoint's state (`then`) with this run's record and options (`now`). Throws InputError for differences
/// that are refused; with --resume-anyway it reports them and the data start anew in the next epoch. `path`: of the
/// checkpoint; `windows`: training windows of this run.
Resumed compare_with(const std::string& path, const checkpoint::TrainerState& then, const RunRecord& now,
                     const TrainOptions& options, std::int64_t windows);

}  // namespace fsdp::train
