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

/// A run's claim to --checkpoint-dir, for the lifetime of the object: rank 0 has locked it, and a run that does not
/// resume found no checkpoint there. Without --checkpoint-dir it claims nothing.
class CheckpointDir {
 public:
  /// Collective; throws InputError on all ranks. Uses the deadline for disks; rank 0 warns on stderr.
  CheckpointDir(const comm::Ranks& ranks, const TrainOptions& options);

  /// Collective; throws InputError on all ranks unless every rank sees rank 0's lock and can write there: hosts may
  /// each have a folder of that name. Uses the deadline for disks.
  void require_shared(const comm::Ranks& ranks, const TrainOptions& options) const;

  /// Throws InputError if another run has taken the lock over.
  void require_held() const;

 private:
  std::optional<checkpoint::DirectoryLock> lock_;  ///< on rank 0
};

/// Returns the identity of the run that wrote `from`, the checkpoint to resume. If it names none, as one of an earlier
/// version, returns that of --checkpoint-dir's newest, or else `otherwise`. Throws InputError if --checkpoint-dir has
/// checkpoints of yet another run.
std::string resumed_identity(const TrainOptions& options, const checkpoint::Checkpoint& from,
                             const std::string& otherwise);

/// Returns a line for the user if --checkpoint-dir has later steps than the checkpoint of --resume; else empty.
std::string later_steps(const TrainOptions& options, const checkpoint::Checkpoint& from);

/// Throws InputError if the disk has no room for one checkpoint of the run. Warns if it cannot hold all checkpoints
/// that the run will keep.
void require_room(const TrainOptions& options, const checkpoint::Listing& model,
                  const checkpoint::OptimizerStates& states, const checkpoint::Warn& warn);

/// Returns the folder that --resume names; for "auto" the newest sound checkpoint in --checkpoint-dir. Returns nothing
/// if --resume is not given, or if it is "auto" and the directory has no checkpoints. Throws InputError if the
/// directory has checkpoints but none is sound: silently starting again would look like resuming.
std::optional<std::filesystem::path> folder_to_resume(const TrainOptions& options, const checkpoint::ReadListing& read,
                                                      const checkpoint::Warn& warn);

/// Removes all but the --keep newest checkpoints up to step `newest`; keeps those in `spared`, too. Called by rank 0
/// after step `newest` was saved. Warns if one cannot be removed.
void remove_older(const TrainOptions& options, std::int64_t newest, std::span<const std::filesystem::path> spared,
                  const checkpoint::Warn& warn);

}  // namespace fsdp::train
