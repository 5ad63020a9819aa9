// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory that is still available on this machine and in the process's container.
#pragma once

#include <cstdint>
#include <filesystem>

namespace fsdp::plan {

/// Returns the bytes that may still be allocated: the minimum of the memory that the system reports as available and
/// the memory that the process's control groups (version 1 or 2) leave. `root`: the folder that contains proc and sys.
/// Throws InputError if neither is known.
std::int64_t available_memory(const std::filesystem::path& root = "/");

}  // namespace fsdp::plan
