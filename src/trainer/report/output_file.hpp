// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text files that a flag names. Such a file appears whole or not at all: it is written under a temporary name beside
/// it, also behind a symbolic link. Pipes and devices are written as they stand.
#pragma once

#include <filesystem>
#include <string_view>

namespace fsdp::report {

/// Throws InputError "FLAG PATH: cannot be written: ..." if it cannot be. Leaves nothing behind.
void require_writable(std::string_view flag, const std::filesystem::path& path);

/// Writes the file. Throws InputError with the flag and the path.
void write_output(std::string_view flag, const std::filesystem::path& path, std::string_view text);

}  // namespace fsdp::report
