// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text files that a command reads once, line by line, and output files of flags.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/file.hpp>
#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::report {

/// Calls `take` with each line and its number, counted from 1. A FIFO, such as the shell's <(command), is first read
/// completely. Throws an InputError that begins with `where` if the file cannot be read, and for a FIFO without a
/// writer.
void read_lines(std::string_view where, const std::filesystem::path& path,
                FunctionRef<void(std::int64_t number, const std::string& text)> take);

/// Throws InputError "FLAG PATH: cannot be written: ..." if the file cannot be written, and for a FIFO without a
/// reader, for which opening would wait. Leaves no new file. Returns an open descriptor of a FIFO, so that its reader
/// does not see the end before the file is written; an empty one for other files.
[[nodiscard]] FileDescriptor require_writable(std::string_view flag, const std::filesystem::path& path);

/// Opens a file or a FIFO for appending. Throws like require_writable.
std::ofstream open_to_append(std::string_view flag, const std::filesystem::path& path, std::ios::openmode mode = {});

/// Writes the file. Throws an InputError that contains the flag and the path.
void write_output(std::string_view flag, const std::filesystem::path& path, std::string_view text);

}  // namespace fsdp::report
