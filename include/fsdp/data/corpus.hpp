// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text files as one sequence of bytes, each byte a token.
///
/// Files are mapped only while a range is copied out of them, so resident memory does not grow with the data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace fsdp::data {

/// A file and where its first byte stands in the corpus.
struct CorpusFile {
  std::filesystem::path path = {};
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
};

/// Immutable; `copy` may be called from several threads at once.
class Corpus {
 public:
  /// Files in the order given; a folder stands for the regular files below it, sorted by path. Files with a NUL byte in
  /// their first 8 KiB are skipped and counted. Throws InputError where a path is missing or nothing is left.
  explicit Corpus(std::span<const std::filesystem::path> paths);

  std::int64_t size() const { return size_; }               ///< bytes = tokens
  std::int64_t skipped_binary() const { return skipped_; }  ///< files
  std::span<const CorpusFile> files() const { return files_; }

  /// Bytes [begin, begin + out.size()). Throws InputError where a file has changed its size meanwhile.
  void copy(std::int64_t begin, std::span<std::uint8_t> out) const;

 private:
  void add(const std::filesystem::path& path);

  std::vector<CorpusFile> files_;
  std::int64_t size_ = 0;
  std::int64_t skipped_ = 0;
};

}  // namespace fsdp::data
