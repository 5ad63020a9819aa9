// SPDX-License-Identifier: Apache-2.0
/// @file
/// The owner of a directory's lock, as the lock file names it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace fsdp::checkpoint {

/// A process that locked a directory.
struct LockOwner {
  std::string host;
  std::int64_t process = 0;
  std::string since;         ///< UTC, for messages
  std::int64_t ticks = -1;   ///< start of the process in clock ticks; differs for a later process with the same id
  std::string processes;     ///< names the kernel and the namespace that give meaning to `process`; empty: not known
  std::uint64_t number = 0;  ///< drawn at random, so that no two locks are alike
};

/// Returns this process as an owner, with a new number.
LockOwner this_process();

/// Returns the contents of the owner's lock file.
std::string to_json(const LockOwner& owner);
/// Reads them; returns an owner without host if the text is empty (the lock is just being created) or not valid.
LockOwner owner_of(const std::string& text, const std::filesystem::path& path);

/// Returns the owner in words, for messages.
std::string text_of(const LockOwner& owner);

/// Returns whether the owner runs, or ran, under this system's kernel, whose locks then say all.
bool is_of_this_kernel(const LockOwner& owner);
/// Returns whether the owner's process id means a process of this machine.
bool is_here(const LockOwner& owner);
/// Returns whether an owner that is here still runs.
bool lives_here(const LockOwner& owner);

}  // namespace fsdp::checkpoint
