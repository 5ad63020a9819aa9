// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks the files that a run writes besides its checkpoints: --metrics, --digests and --trace.
#pragma once

#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Throws InputError if a file that the run writes is also one that it reads, is in its folder of checkpoints, or is
/// written twice.
void require_apart(const TrainOptions& options);

}  // namespace fsdp::train
