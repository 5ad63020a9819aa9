// SPDX-License-Identifier: Apache-2.0
/// @file
/// A lock that lets only one run at a time write into a directory of checkpoints.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>

#include <fsdp/checkpoint/model_files.hpp>

namespace fsdp::checkpoint {

/// A lock on a directory, held during the object's lifetime: the file `<dir>/run.lock`. The file names its owner (host,
/// process, start), is locked if the file system supports OFD locks (see fcntl(2)), and gets a new modification time
/// every ten seconds.
///
/// An existing lock is held if the operating system says so. If it cannot tell (owner on another host, file system
/// without locks), the lock of an owner on this host is held while its process runs, and any other lock until it was
/// not renewed for `stale_after`. A stale lock is taken over with a warning.
class DirectoryLock {
 public:
  static constexpr std::chrono::seconds renewed_every{10};
  static constexpr std::chrono::seconds stale_after{120};

  /// Creates the directory if needed and takes the lock. Throws InputError, which names the owner, if another run holds
  /// it.
  explicit DirectoryLock(const std::filesystem::path& dir, const Warn& warn = {});
  DirectoryLock(DirectoryLock&&) noexcept;
  DirectoryLock& operator=(DirectoryLock&&) noexcept;
  /// Removes the lock file. Also removes the directory if this object created it and it is empty.
  ~DirectoryLock();

 private:
  class Held;
  std::unique_ptr<Held> held_;
};

}  // namespace fsdp::checkpoint
