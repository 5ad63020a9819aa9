// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks the files that a run writes besides its checkpoints, --metrics, --digests and --trace, and those of a replay.
#pragma once

#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/replay_request.hpp>

namespace fsdp::train {

/// Throws InputError if a file that the run writes is also one that it reads, is in its folder of checkpoints, or is
/// written twice.
void require_apart(const TrainOptions& options);

/// Throws InputError if a file or folder that the replay writes is one that it reads, or is in one: the run's folder,
/// its data, or what --against names.
void require_apart(const ReplayRequest& request, const TrainOptions& options);

}  // namespace fsdp::train
