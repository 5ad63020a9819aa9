// SPDX-License-Identifier: Apache-2.0
/// @file
/// The entries of a run's record for `tessera replay`: the paths of its data and the texts of its policies. Runs that
/// resume do not compare these entries, and the run's identity does not include them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/arguments.hpp>
#include <tessera/trainer/run/resumed.hpp>

namespace fsdp::train {

/// Returns whether an entry of a record is only for replay.
bool is_for_replay(std::string_view name);

/// Returns the entries for replay. Paths are absolute. Omits values that trainer.json cannot contain: names that are
/// not UTF-8 or have several lines, and very many paths.
RunRecord replay_record(const TrainOptions& options, const PolicyTexts& policies);

/// Returns the values of an entry for replay, by the name of its flag; empty if it was not recorded.
std::vector<std::string> replay_values(const RunRecord& record, std::string_view flag);

}  // namespace fsdp::train
