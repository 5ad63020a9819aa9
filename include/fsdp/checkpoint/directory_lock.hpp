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

inline constexpr std::string_view lock_name = "run.lock";  ///< of the file in the locked directory

/// How often an owner renews its lock, and how long another process watches a lock before it takes it over.
struct LockTimes {
  std::chrono::milliseconds renewed_every{10'000};
  std::chrono::milliseconds watched_for{60'000};
};

/// A lock on a directory, held during the object's lifetime: the file `<dir>/run.lock`. The file names its owner (host,
/// process, start), is locked if the file system supports OFD locks (see fcntl(2)), and gets a new modification time
/// every ten seconds.
///
/// An existing lock is held if the operating system says so. If it cannot tell (owner on another host, file system
/// without locks), the lock of an owner on this host is held while its process runs. Any other lock is watched, on this
/// process's own clock: it is held if its modification time changes within `watched_for`, and taken over, with a
/// warning, if not. Clocks of two hosts are never compared.
class DirectoryLock {
 public:
  /// Creates the directory if needed and takes the lock. Throws InputError, which names the owner, if another run holds
  /// it. `warn` is also told before a lock is watched.
  explicit DirectoryLock(const std::filesystem::path& dir, const Warn& warn = {}, const LockTimes& times = {});
  DirectoryLock(DirectoryLock&&) noexcept;
  DirectoryLock& operator=(DirectoryLock&&) noexcept;
  /// Removes the lock file. Also removes the directory if this object created it and it is empty.
  ~DirectoryLock();

  /// Contents of the lock file, which differ for every lock.
  const std::string& text() const;
  /// Throws InputError if another run took the lock over, as it may do while this process is stopped.
  void require_held() const;

 private:
  class Held;
  std::unique_ptr<Held> held_;
};

/// Throws InputError unless this process sees and can write the lock file that holds `text`: if not, the directory is
/// not the one that the owner locked. Looks again for `patience`, since a file system of several hosts may show a new
/// file late.
void require_lock_seen(const std::filesystem::path& dir, std::string_view text,
                       std::chrono::milliseconds patience = std::chrono::seconds(3));

}  // namespace fsdp::checkpoint
