// SPDX-License-Identifier: Apache-2.0
/// @file
/// Short identities that processes compare: of files, of the machine and of the program's build.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace fsdp {

/// The part of a file that a digest reads: a file of up to `whole` bytes in full; of a larger file, evenly spaced
/// blocks of 4 KiB, including the first and the last block.
struct FileSample {
  std::int64_t whole = std::int64_t{64} << 20;  ///< size in bytes of the largest file that is read in full
  std::int64_t blocks = 1024;
};

/// Returns a hash of a file's size and contents (for a large file, of the sample `at`). Detects accidents, not attacks.
/// Throws InputError if the file cannot be read.
std::uint64_t digest_of_file(const std::filesystem::path& path, const FileSample& at = {});

/// Returns a digest as 16 hexadecimal digits.
std::string digest_text(std::uint64_t digest);

/// Returns this machine's host name.
std::string machine_name();

/// Returns "build = ..." with this program's version and linker build id.
std::string build_identity();

}  // namespace fsdp
