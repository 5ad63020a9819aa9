// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks the output files of a run other than checkpoints (--metrics, --digests and --trace), and those of a replay.
#pragma once

#include <span>
#include <string>

#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/replay_request.hpp>

namespace fsdp::train {

/// Throws InputError if `file`, an output file of `flag`, is one of the files of --config.
void require_unread(const char* flag, const std::string& file, std::span<const std::string> configs);

/// Throws InputError if an output file of the run is also an input file, is in its folder of checkpoints, or is written
/// twice. `configs`: the files of --config (FlagSet::files).
void require_apart(const TrainOptions& options, std::span<const std::string> configs = {});

/// Throws InputError if a file or folder that the replay writes is an input or is inside one: the run's folder, its
/// data, or --against.
void require_apart(const ReplayRequest& request, const TrainOptions& options);

}  // namespace fsdp::train
