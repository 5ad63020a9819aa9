// SPDX-License-Identifier: Apache-2.0
/// @file
/// The free space of a disk, checked before large writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace fsdp::checkpoint {

/// Returns the free bytes on the disk of `path`, or of the closest existing parent folder; nothing if the system does
/// not report them.
std::optional<std::int64_t> bytes_left(const std::filesystem::path& path);

}  // namespace fsdp::checkpoint
