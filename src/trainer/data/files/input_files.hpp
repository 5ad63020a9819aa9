// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lists the files that --data and `tessera tokenize` name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/file.hpp>
#include <tessera/trainer/data/left_out.hpp>

namespace fsdp::data {

/// A file to read.
struct InputFile {
  std::filesystem::path path = {};
  bool named = false;  ///< by its own path; false: found in a folder
};

/// Files to read, and what folders hold besides.
struct InputFiles {
  std::vector<InputFile> files = {};
  LeftOut left_out = {};
};

/// Lists files in the order given. A folder stands for the regular files below it, sorted by path; a Megatron prefix
/// for its index. Links are followed, each folder is read once. Names that begin with a dot, leftovers of editors
/// (*~, #*#, *.swp, *.tmp, *.bak, *.orig), run.lock, links to nothing, and what is neither file nor folder are left out
/// of folders. Throws InputError if a path is missing or cannot be listed.
InputFiles input_files(std::span<const std::filesystem::path> paths);

/// Adds a file's path, size and modification time to a hash, to detect changes.
std::uint64_t hashed_state(std::uint64_t hash, const std::filesystem::path& file);

/// A file that is open for reading.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const FileDescriptor& descriptor() const { return file_; }
  std::int64_t bytes() const { return bytes_; }  ///< when it was opened
  /// Fills `values` from byte `at` on. Throws InputError if the file ends before that.
  template <class Values>
  void read(std::int64_t at, Values&& values) const {
    read_all(file_, path_, values.data(), values.size() * sizeof(*values.data()), at);
  }
  /// Reads its first 8 KiB. Does not map the file: a page fault maps up to 16 neighbouring pages, which would make
  /// every small file resident.
  std::string head() const;

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::int64_t bytes_;
};

/// Returns the number that at most eight little-endian bytes are.
inline std::uint64_t little_endian(std::string_view bytes) {
  return std::accumulate(bytes.rbegin(), bytes.rend(), std::uint64_t{0},
                         [](std::uint64_t high, char low) { return high << 8 | static_cast<unsigned char>(low); });
}

}  // namespace fsdp::data
