// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks the files that a run writes besides its checkpoints, --metrics, --digests and --trace, and those of a replay.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <tessera/trainer/flags/flag_set.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/replay_request.hpp>

namespace fsdp::train {

/// A file that a command reads, and the flag that names it.
struct ReadFile {
  std::string flag = {};  ///< such as "--config"
  std::string path = {};
};

/// Returns the files that the flags themselves were read from.
std::vector<ReadFile> files_of(const FlagSet& flags);

/// Throws InputError if `file`, which `flag` has written, is one of those that the command reads.
void require_unread(const char* flag, const std::string& file, std::span<const ReadFile> read);

/// Throws InputError if a file that the run writes is also one that it reads, is in its folder of checkpoints, or is
/// written twice. `read`: files that it reads besides those of its options.
void require_apart(const TrainOptions& options, std::span<const ReadFile> read = {});

/// Throws InputError if a file or folder that the replay writes is one that it reads, or is in one: the run's folder,
/// its data, or what --against names.
void require_apart(const ReplayRequest& request, const TrainOptions& options);

}  // namespace fsdp::train
