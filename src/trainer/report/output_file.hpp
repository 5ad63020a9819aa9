// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text files that a flag names. Such a file appears whole or not at all: it is written under a temporary name beside
/// it, also behind a symbolic link. Pipes and devices are written as they stand.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

#include <tessera/fsdp/core/file.hpp>

namespace fsdp::report {

/// Throws InputError "FLAG PATH: cannot be written: ..." if it cannot be; also for a FIFO without a reader, which
/// opening would wait for. Leaves nothing behind. Returns an open descriptor of a FIFO, so that its reader does not see
/// the end before the file is written; none of another file.
[[nodiscard]] FileDescriptor require_writable(std::string_view flag, const std::filesystem::path& path);

/// Opens a file or a FIFO to append to it. Throws as require_writable does.
std::ofstream open_to_append(std::string_view flag, const std::filesystem::path& path, std::ios::openmode mode = {});

/// Writes the file. Throws InputError with the flag and the path.
void write_output(std::string_view flag, const std::filesystem::path& path, std::string_view text);

}  // namespace fsdp::report
