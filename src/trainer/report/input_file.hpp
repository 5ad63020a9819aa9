// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text files that a command reads once, line by line. A FIFO is opened without waiting for its writer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::report {

/// Calls `take` with each line and its number, counted from 1. A FIFO, such as the shell's <(command), is first read
/// completely. Throws an InputError that begins with `where` if the file cannot be read, and for a FIFO without a
/// writer.
void read_lines(std::string_view where, const std::filesystem::path& path,
                FunctionRef<void(std::int64_t number, const std::string& text)> take);

}  // namespace fsdp::report
