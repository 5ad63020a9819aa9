// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks and chooses folders for --checkpoint-dir and --resume. Independent of the stack.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/directory_lock.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Throws InputError if --checkpoint-dir cannot be created or written. Checked at the start, so that a run does not
/// fail at its first save.
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

/// Returns the identity of the run that wrote `from`, the checkpoint to resume. If `from` does not contain one, because
/// an earlier version wrote it, returns the identity in --checkpoint-dir's newest checkpoint, or else `otherwise`.
/// Throws InputError if --checkpoint-dir has checkpoints of a different run.
std::string resumed_identity(const TrainOptions& options, const checkpoint::Checkpoint& from,
                             const std::string& otherwise);

/// Returns a line for the user if --checkpoint-dir has later steps than the checkpoint of --resume; else an empty text.
std::string later_steps(const TrainOptions& options, const checkpoint::Checkpoint& from);

/// Throws InputError if the disk has too little space for one checkpoint of the run. Warns if it has too little for all
/// checkpoints that the run will keep.
void require_room(const TrainOptions& options, const checkpoint::Listing& model,
                  const checkpoint::OptimizerStates& states, const checkpoint::Warn& warn);

/// Returns the folder of --resume; for "auto" the newest intact checkpoint in --checkpoint-dir. Returns nothing if
/// --resume is not given, or if it is "auto" and the directory has no checkpoints. Throws InputError if the directory
/// has only damaged checkpoints: silently starting again would look like resuming.
std::optional<std::filesystem::path> folder_to_resume(const TrainOptions& options, const checkpoint::ReadListing& read,
                                                      const checkpoint::Warn& warn);

/// Removes all checkpoints up to step `newest`, except the --keep newest and those in `spared`. Called by rank 0 after
/// step `newest` was saved. Warns if a checkpoint cannot be removed.
void remove_older(const TrainOptions& options, std::int64_t newest, std::span<const std::filesystem::path> spared,
                  const checkpoint::Warn& warn);

}  // namespace fsdp::train
