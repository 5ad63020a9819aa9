// SPDX-License-Identifier: Apache-2.0
/// @file
/// One run at a time writes into a directory of checkpoints.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>

#include <fsdp/checkpoint/model_files.hpp>

namespace fsdp::checkpoint {

/// A lock on a directory, held while the object lives: `<dir>/run.lock`, which names its owner (host, process, start),
/// is locked where the file system can (OFD locks, see fcntl(2)), and has its time of change renewed every ten seconds.
///
/// Another's lock is held as long as the system says so, or, where that cannot know (another host, a file system
/// without locks): on this host as long as its process lives, else until it was not renewed for `stale_after`. A lock
/// that is held by nobody is taken over with a warning.
class DirectoryLock {
 public:
  static constexpr std::chrono::seconds renewed_every{10};
  static constexpr std::chrono::seconds stale_after{120};

  /// Makes the directory where it is not there. Throws InputError that names the owner where another run holds it.
  explicit DirectoryLock(const std::filesystem::path& dir, const Warn& warn = {});
  DirectoryLock(DirectoryLock&&) noexcept;
  DirectoryLock& operator=(DirectoryLock&&) noexcept;
  /// Removes the file, and the directory where this made it and nothing is in it.
  ~DirectoryLock();

 private:
  class Held;
  std::unique_ptr<Held> held_;
};

}  // namespace fsdp::checkpoint
