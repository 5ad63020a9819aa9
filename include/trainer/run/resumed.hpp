// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compares a resumed run's options with those of the run that saved the checkpoint.
///
/// Differences that change which data later steps see are refused: batch size, seed, sequence length, data. Every other
/// difference that changes results is reported in one line.
///
/// A run whose steps are cut into as many pieces as those of the checkpoint (Reproducible) resumes with bit-identical
/// results on any number of ranks, and reports this. Differences that would change the last bits of every step are
/// refused: threads, instruction set, library, build, precision, tile plans.
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

/// Returns an entry of a record; empty if the record does not have it.
std::string value_of(const RunRecord& record, const std::string& name);

/// Returns the record of a run's options: the texts of the flags on which results depend (Effect::results).
RunRecord record_of(TrainOptions options);
/// Adds an optimizer's name and constants to the record.
void add_optimizer(RunRecord& record, std::string_view name, const ConfigValues& constants);

/// Adds the values of the model's config to the record; does not replace existing entries of the same name.
void add_config(RunRecord& record, const ConfigValues& values);

/// The result of comparing a run with the checkpoint that it resumes.
struct Resumed {
  data::Position position = {};         ///< position from which the data are read on
  std::vector<std::string> lines = {};  ///< messages for the user: the resumed step, and each difference
  std::string warning = {};             ///< warning that the learning rate rises; empty if it does not
};

/// Compares a checkpoint's state (`then`) with this run's record and options (`now`). Throws InputError for differences
/// that are refused; with --resume-anyway, reports them instead, and the data restart in the next epoch. `path`: path
/// of the checkpoint; `windows`: number of training windows of this run.
Resumed compare_with(const std::string& path, const checkpoint::TrainerState& then, const RunRecord& now,
                     const TrainOptions& options, std::int64_t windows);

}  // namespace fsdp::train
