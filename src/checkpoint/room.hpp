// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a disk has left, asked before much is written to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace fsdp::checkpoint {

/// Bytes left on the disk of `path`, or of the closest folder above it that is there. Nothing where the system does not
/// say: writing will tell.
std::optional<std::int64_t> bytes_left(const std::filesystem::path& path);

}  // namespace fsdp::checkpoint
