// SPDX-License-Identifier: Apache-2.0
/// @file
/// A resumed run beside the one that saved: what is refused, and what is said.
///
/// Refused is what changes which data the steps to come see: batch size, seed, sequence length, data. All else that
/// changes results is said in a line each.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/checkpoint/folder.hpp>
#include <fsdp/data/sampler.hpp>
#include <fsdp/train/flag_set.hpp>
#include <fsdp/train/options.hpp>

namespace fsdp::train {

/// What a run was told that changes its results: text by name, kept in trainer.json.
using RunRecord = std::map<std::string, std::string>;

/// The flags of such options, by name.
RunRecord record_of(const TrainOptions& options);

/// Adds an optimizer's name and constants to the record.
void add_optimizer(RunRecord& record, std::string_view name, const ConfigValues& constants);

struct Resumed {
  data::Position position = {};         ///< where the data go on
  std::vector<std::string> lines = {};  ///< from where, and a line for each change
};

/// Throws InputError for what is refused. `path`: the checkpoint; `windows`: those trained on now.
Resumed compare_with(const std::string& path, const checkpoint::TrainerState& then, const RunRecord& now,
                     const TrainOptions& options, std::int64_t windows);

}  // namespace fsdp::train
