// SPDX-License-Identifier: Apache-2.0
/// @file
/// Conversations of JSONL as one file of tokens, made once: what a run with --data-format chat reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <fsdp/core/file.hpp>
#include <fsdp/text/chat.hpp>

namespace fsdp::data {

/// Bytes that were read, of all.
using ReportBytes = std::function<void(std::int64_t bytes, std::int64_t all_bytes)>;

/// The .jsonl and .ndjson files of paths, and a format that makes tokens of them.
class ConversationTexts {
 public:
  /// `tokenizer`: a tokenizer.json. Throws InputError where a path is no JSONL.
  ConversationTexts(std::span<const std::filesystem::path> paths, const std::filesystem::path& tokenizer,
                    const std::string& chat_template);

  /// The tokenizer and its template.
  const text::ChatFormat& format() const { return format_; }
  /// 16 digits that differ where files, their sizes or times, the tokenizer or the template do.
  std::string made_of() const;

  /// Writes the file of tokens, which appears when it is whole, on all cores, in order. Throws InputError with file and
  /// line for what is no conversation.
  void write(const std::filesystem::path& path, const ReportBytes& report = {}) const;

 private:
  std::vector<std::filesystem::path> files_;
  std::filesystem::path tokenizer_;
  text::ChatFormat format_;
};

/// A file that ConversationTexts wrote. Immutable; any number of threads may copy.
class Conversations {
 public:
  /// Throws InputError for a damaged file.
  explicit Conversations(const std::filesystem::path& path);

  /// How many conversations there are.
  std::int64_t size() const { return static_cast<std::int64_t>(index_.size()); }
  /// Of all conversations together.
  std::int64_t tokens() const { return index_.empty() ? 0 : index_.back().end; }
  std::int64_t length(std::int64_t i) const { return entry(i).end - begin(i); }  ///< tokens of one
  std::string place_of(std::int64_t i) const;                                    ///< "chats.jsonl line 7"
  const std::string& digest() const { return digest_; }                          ///< of all tokens

  /// Appends the tokens of one; of those that are no answer ~token.
  void append(std::int64_t i, std::vector<std::int32_t>& tokens) const;

  /// Where a conversation ends, and where it was read.
  struct Entry {
    std::int64_t end = 0;  ///< of its tokens, in the file's
    std::int64_t file = 0, line = 0;
  };

 private:
  const Entry& entry(std::int64_t i) const { return index_[static_cast<std::size_t>(i)]; }
  std::int64_t begin(std::int64_t i) const { return i == 0 ? 0 : entry(i - 1).end; }

  std::filesystem::path path_;
  FileDescriptor file_;
  std::vector<Entry> index_;
  std::vector<std::string> sources_;
  std::string digest_;
};

}  // namespace fsdp::data
