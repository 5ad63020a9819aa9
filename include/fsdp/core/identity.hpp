// SPDX-License-Identifier: Apache-2.0
/// @file
/// Short texts by which two processes tell whether they see the same file or are the same program on one machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace fsdp {

/// Hash of a file's size and contents, read whole up to 64 MiB; of a larger file 1,024 evenly spread blocks of 4 KiB,
/// the first and the last among them. Finds accidents, not attacks. Throws InputError where it cannot be read.
std::uint64_t digest_of_file(const std::filesystem::path& path);

/// 16 hexadecimal digits.
std::string digest_text(std::uint64_t digest);

/// What the machine calls itself.
std::string machine_name();

/// "build = ..." with the version and the linker's id of this program.
std::string build_identity();

}  // namespace fsdp
