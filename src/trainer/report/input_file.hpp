// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text files that a command reads once, line by line. A FIFO is opened without waiting for its writer.
#pragma once

#include <filesystem>
#include <istream>
#include <memory>
#include <string_view>

namespace fsdp::report {

/// Opens a file; of a FIFO, such as the shell's <(command), it reads all first. Throws InputError, which begins with
/// `where`, for what cannot be read, and for a FIFO without a writer.
std::unique_ptr<std::istream> open_input(std::string_view where, const std::filesystem::path& path);

}  // namespace fsdp::report
