// SPDX-License-Identifier: Apache-2.0
/// @file
/// A lock that lets only one run at a time write into a directory of checkpoints.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <tessera/fsdp/checkpoint/weight_files.hpp>

namespace fsdp::checkpoint {

inline constexpr std::string_view lock_name = "run.lock";  ///< name of the lock file in the directory

/// How often an owner renews its lock, and how long another process watches a lock before taking it over.
struct LockTimes {
  std::chrono::milliseconds renewed_every{10'000};
  std::chrono::milliseconds watched_for{60'000};
};

/// A lock on a directory for the object's lifetime: the file `<dir>/run.lock`. The file identifies its owner (host,
/// process, start time), is locked if the file system supports OFD locks (see fcntl(2)), and gets a new modification
/// time every ten seconds.
///
/// An existing lock is in force if the operating system reports that its file is locked. If the system cannot decide
/// (owner on another host, file system without locks), the lock of an owner on this host is in force while its process
/// runs. Any other lock is watched with this process's own clock: it is in force if its modification time changes
/// within `watched_for`; otherwise it is taken over with a warning. Clocks of two hosts are never compared.
class DirectoryLock {
 public:
  /// Creates the directory if needed and takes the lock. Throws InputError, which identifies the owner, if another run
  /// holds the lock. `warn` is also called before a lock is watched.
  explicit DirectoryLock(const std::filesystem::path& dir, const Warn& warn = {}, const LockTimes& times = {});
  DirectoryLock(DirectoryLock&&) noexcept;
  DirectoryLock& operator=(DirectoryLock&&) noexcept;
  /// Removes the lock file. Also removes the directory if this object created it and it is empty.
  ~DirectoryLock();
  const std::string& text() const;  ///< contents of the lock file, which are unique to this lock
  /// Throws InputError if another run took over the lock, which can happen while this process is stopped.
  void require_held() const;

 private:
  class Held;
  std::unique_ptr<Held> held_;
};

/// Throws InputError unless this process can read and write a lock file that contains `text`: otherwise the directory
/// is not the one that the owner locked. Retries for `patience`, since a file system that several hosts share may show
/// a new file late.
void require_lock_seen(const std::filesystem::path& dir, std::string_view text,
                       std::chrono::milliseconds patience = std::chrono::seconds(3));

}  // namespace fsdp::checkpoint
