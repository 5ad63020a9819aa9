// SPDX-License-Identifier: Apache-2.0
/// @file
/// The owner of a directory's lock, as recorded in the lock file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace fsdp::checkpoint {

/// A process that locked a directory.
struct LockOwner {
  std::string host;
  std::int64_t process = 0;
  std::string since;  ///< UTC start time, for messages
  /// Start time of the process in clock ticks; distinguishes later processes with the same id; -1 if unknown.
  std::int64_t ticks = -1;
  std::string processes;     ///< identifies the kernel and the namespace in which `process` is valid; empty if unknown
  std::uint64_t number = 0;  ///< random number that makes each lock unique
};

/// Returns this process as an owner, with a new random number.
LockOwner this_process();

/// Returns the contents of the owner's lock file.
std::string to_json(const LockOwner& owner);
/// Parses the contents of a lock file. Returns an owner without host if the text is empty (the lock is just being
/// created) or not valid.
LockOwner owner_of(const std::string& text, const std::filesystem::path& path);

/// Returns a description of the owner for messages.
std::string text_of(const LockOwner& owner);

/// Returns whether the owner runs, or ran, under this system's kernel, whose file locks are then conclusive.
bool is_of_this_kernel(const LockOwner& owner);
/// Returns whether the owner's process id is valid on this machine.
bool is_here(const LockOwner& owner);
/// Returns whether an owner on this machine (is_here) still runs.
bool lives_here(const LockOwner& owner);

}  // namespace fsdp::checkpoint
