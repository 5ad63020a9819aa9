// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lists the files in the paths of --data and `tessera tokenize`, opens them, and recognizes formats that no reader
/// supports by a file's first bytes. To add such a format: a line in the table of src/fsdp/core/magics.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/file.hpp>
#include <tessera/trainer/data/data_inputs.hpp>

namespace fsdp::data {

/// A file to read.
struct InputFile {
  std::filesystem::path path = {};
  bool named = false;  ///< whether the user specified its own path; false: found in a folder
};

/// Files to read, and skipped entries of folders.
struct InputFiles {
  std::vector<InputFile> files = {};
  LeftOut left_out = {};
};

/// Lists files in the given order. A folder stands for the regular files below it, sorted by path; a Megatron prefix
/// stands for its index. Links are followed, each folder is read once. In folders, the following are skipped: names
/// that begin with a dot, leftovers of editors (*~, #*#, *.swp, *.tmp, *.bak, *.orig), run.lock, dangling links, and
/// entries that are neither files nor folders. Throws InputError if a path is missing or cannot be listed.
InputFiles input_files(std::span<const std::filesystem::path> paths);

/// Adds a file's path, size and modification time to a hash, to detect changes.
std::uint64_t hashed_state(std::uint64_t hash, const std::filesystem::path& file);

/// A file that is open for reading.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const FileDescriptor& descriptor() const { return file_; }
  std::int64_t bytes() const { return bytes_; }  ///< size when it was opened
  /// Fills `values` with the data from byte `at` on. Throws InputError if the file ends too early.
  template <class Values>
  void read(std::int64_t at, Values&& values) const {
    read_all(file_, path_, values.data(), values.size() * sizeof(*values.data()), at);
  }
  /// Reads its first 8 KiB. Does not map the file, since a page fault can make all of a small file resident.
  std::string head() const;

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::int64_t bytes_;
};

/// Returns the number that is encoded in at most eight little-endian bytes.
inline std::uint64_t little_endian(std::string_view bytes) {
  return std::accumulate(bytes.rbegin(), bytes.rend(), std::uint64_t{0},
                         [](std::uint64_t high, char low) { return high << 8 | static_cast<unsigned char>(low); });
}

/// A format, and advice for a file in this format.
struct FileKind {
  std::string name = {};    ///< "compressed by gzip"
  std::string advice = {};  ///< "unpack it (gunzip)"
  bool missing = false;     ///< whether the file is a placeholder for absent data
};

/// Returns the format that a file's first bytes identify; nothing for text, for tokens and for unknown bytes.
std::optional<FileKind> known_kind(std::string_view head);

/// Returns whether bytes are text: UTF-8 without control characters, except white space and escapes.
bool is_plain_text(std::string_view head);

/// Throws InputError if a file without a header cannot consist of tokens of `token_bytes` (2 or 4): if it begins like a
/// known format, is text, or contains wider integers, whose upper halves are zero. `format`: for the message.
void require_raw_tokens(const OpenFile& file, int token_bytes, const std::string& format);

}  // namespace fsdp::data
