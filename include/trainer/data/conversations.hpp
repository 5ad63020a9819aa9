// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tokenizes conversations in JSON into one file, once, and reads that file (--data-format chat).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/core/file.hpp>
#include <tessera/text/chat.hpp>
#include <tessera/trainer/data/data_inputs.hpp>

namespace fsdp::data {

/// Reports progress: bytes of text read so far, and their total.
using ReportBytes = std::function<void(std::int64_t bytes, std::int64_t all_bytes)>;

/// Files of conversations and the chat format that encodes them.
class ConversationTexts {
 public:
  /// `paths`: .jsonl, .ndjson and .json files, or folders of them. `tokenizer`: a tokenizer.json. `chat_template`,
  /// `end_token` and `learn`: as for text::ChatFormat. Throws InputError for a file with another extension.
  ConversationTexts(std::span<const std::filesystem::path> paths, const std::filesystem::path& tokenizer,
                    const std::string& chat_template, const std::string& end_token = {},
                    text::Learn learn = text::Learn::all);

  const text::ChatFormat& format() const { return format_; }  ///< the tokenizer and its template
  const LeftOut& left_out() const { return left_out_; }       ///< files and folder entries that are not read
  /// Returns a hash in hexadecimal of the files' paths, sizes and modification times, the tokenizer and the template.
  std::string made_of() const;

  /// Encodes all conversations on all cores and writes them, in order, to one file, which appears when it is complete.
  /// Throws InputError for a record that is not a conversation, and if more than 1 % of a file is not Unicode.
  void write(const std::filesystem::path& path, const ReportBytes& report = {}) const;

 private:
  std::vector<std::filesystem::path> files_;
  LeftOut left_out_;
  std::filesystem::path tokenizer_;
  text::ChatFormat format_;
};

/// Reads a file that ConversationTexts wrote. Immutable; several threads can call its functions at once.
class Conversations {
 public:
  explicit Conversations(const std::filesystem::path& path);  ///< throws InputError for a damaged file

  std::int64_t size() const { return static_cast<std::int64_t>(index_.size()); }  ///< the number of conversations
  std::int64_t length(std::int64_t i) const { return entry(i).end - begin(i); }  ///< number of tokens of conversation i
  std::string place_of(std::int64_t i) const;            ///< "chats.jsonl line 7", "chats.json record 7"
  const std::string& digest() const { return digest_; }  ///< digest of all tokens
  /// Sentences for the log: about parts of records that the template did not write, and keys that were not read.
  const std::vector<std::string>& notes() const { return notes_; }
  /// The number of bytes in the texts that are not Unicode and were read as U+FFFD.
  std::int64_t replaced_bytes() const { return replaced_; }

  /// Appends the tokens of conversation i. A token that is not part of an answer is appended as ~token.
  void append(std::int64_t i, std::vector<std::int32_t>& tokens) const;

  /// The end of a conversation's tokens, and the place of its text in the source file.
  struct Entry {
    std::int64_t end = 0;  ///< index one past its last token, among all tokens of the file
    std::int64_t file = 0, line = 0;
  };

 private:
  const Entry& entry(std::int64_t i) const { return index_[static_cast<std::size_t>(i)]; }
  std::int64_t begin(std::int64_t i) const { return i == 0 ? 0 : entry(i - 1).end; }

  std::filesystem::path path_;
  FileDescriptor file_;
  std::vector<Entry> index_;
  std::vector<std::string> sources_;
  std::vector<std::string> notes_;
  std::string digest_;
  std::int64_t replaced_ = 0;
};

}  // namespace fsdp::data
