// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks what a run writes before it begins: the files of --metrics, --digests and --trace, the outputs of a replay,
/// and the folder of --checkpoint-dir, which it locks.
#pragma once

#include <optional>
#include <span>
#include <string>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/directory_lock.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/replay_request.hpp>

namespace fsdp::train {

/// Throws InputError if `file`, an output file of `flag`, is one of the files of --config.
void require_unread(const char* flag, const std::string& file, std::span<const std::string> configs);

/// Throws InputError if an output file of the run is also an input file, is in its folder of checkpoints, or is written
/// twice. `configs`: the files of --config (FlagSet::files).
void require_apart(const TrainOptions& options, std::span<const std::string> configs = {});

/// Throws InputError if an output of the replay is an input or inside one: the run's folder, its data, or --against.
void require_apart(const ReplayRequest& request, const TrainOptions& options);

/// Throws InputError if --checkpoint-dir cannot be created or written: else a run would fail at its first save.
void require_writable(const std::string& checkpoint_dir);

/// A run's exclusive use of --checkpoint-dir, for the lifetime of the object: rank 0 locks the folder, and a run that
/// does not resume requires that it has no checkpoints. Does nothing without --checkpoint-dir.
class CheckpointDir {
 public:
  /// Collective; throws InputError on all ranks. Uses the deadline for disks; rank 0 warns on stderr.
  CheckpointDir(const comm::Ranks& ranks, const TrainOptions& options);

  /// Collective; throws InputError on all ranks unless every rank sees rank 0's lock and can write there, since each
  /// host may have its own folder of that name. Uses the deadline for disks.
  void require_shared(const comm::Ranks& ranks, const TrainOptions& options) const;

  /// Throws InputError if another run has taken over the lock.
  void require_held() const;

 private:
  std::optional<checkpoint::DirectoryLock> lock_;  ///< set only on rank 0
};

/// Throws InputError if the disk lacks space for one checkpoint; warns if it lacks space for all that the run keeps.
void require_room(const TrainOptions& options, const checkpoint::Listing& model,
                  const checkpoint::OptimizerStates& states, const checkpoint::Warn& warn);

}  // namespace fsdp::train
