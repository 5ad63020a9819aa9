// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory that this machine, and the container that the process runs in, have left.
#pragma once

#include <cstdint>
#include <filesystem>

namespace fsdp::plan {

/// Bytes that may still be allocated: what the system reports as available, or what the process's control groups
/// (version 1 or 2) leave, whichever is less. `root` is where /proc and /sys are. Throws InputError where nothing
/// tells.
std::int64_t available_memory(const std::filesystem::path& root = "/");

}  // namespace fsdp::plan
