// SPDX-License-Identifier: Apache-2.0
/// @file
/// Output files of flags. Such a file is replaced completely or not at all: it is written under a temporary name in the
/// same folder, also if the path is a symbolic link. Pipes and devices are written directly.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

#include <tessera/fsdp/core/file.hpp>

namespace fsdp::report {

/// Throws InputError "FLAG PATH: cannot be written: ..." if the file cannot be written, and for a FIFO without a
/// reader, for which opening would wait. Leaves no new file. Returns an open descriptor of a FIFO, so that its reader
/// does not see the end before the file is written; an empty one for other files.
[[nodiscard]] FileDescriptor require_writable(std::string_view flag, const std::filesystem::path& path);

/// Opens a file or a FIFO for appending. Throws like require_writable.
std::ofstream open_to_append(std::string_view flag, const std::filesystem::path& path, std::ios::openmode mode = {});

/// Writes the file. Throws an InputError that contains the flag and the path.
void write_output(std::string_view flag, const std::filesystem::path& path, std::string_view text);

}  // namespace fsdp::report
