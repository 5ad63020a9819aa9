// SPDX-License-Identifier: Apache-2.0
/// @file
/// Short texts by which two processes tell whether they see the same file or are the same program on one machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace fsdp {

/// How much of a file is looked at: all of it, or of a larger one evenly spread blocks of 4 KiB, the first and the last
/// among them.
struct Looked {
  std::int64_t whole = std::int64_t{64} << 20;  ///< bytes of the largest file that is read whole
  std::int64_t blocks = 1024;
};

/// Hash of a file's size and contents. Finds accidents, not attacks. Throws InputError where it cannot be read.
std::uint64_t digest_of_file(const std::filesystem::path& path, const Looked& at = {});

/// 16 hexadecimal digits.
std::string digest_text(std::uint64_t digest);

/// What the machine calls itself.
std::string machine_name();

/// "build = ..." with the version and the linker's id of this program.
std::string build_identity();

}  // namespace fsdp
