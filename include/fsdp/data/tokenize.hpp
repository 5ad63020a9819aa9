// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text and JSONL as llm.c's token files, made once: what `tessera tokenize` writes, and a run from --data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fsdp/text/tokenizer.hpp>

namespace fsdp::data {

/// What is made tokens of, and how.
struct TokenizeRequest {
  std::vector<std::filesystem::path> inputs = {};  ///< files, or folders; .jsonl and .ndjson hold a document a line
  std::filesystem::path tokenizer = {};            ///< tokenizer.json, or its folder
  std::string field = "text";                      ///< of a line of JSONL
  std::string end_token = {};  ///< behind each document; empty: eos_token of tokenizer_config.json; "none": no token
  std::int64_t shard_tokens = 100'000'000;  ///< of one file
  std::int64_t threads = 0;                 ///< 0: all cores
};

/// How far it is.
struct TokenizeProgress {
  std::int64_t bytes = 0, all_bytes = 0;  ///< of text
  std::int64_t documents = 0, tokens = 0;
};

/// What was done.
struct Tokenized {
  TokenizeProgress total = {};
  std::int64_t files = 0;             ///< of tokens
  std::int64_t skipped_binary = 0;    ///< files
  std::int64_t resumed_at_bytes = 0;  ///< of text; where an earlier call got
  bool already_complete = false;      ///< nothing was to be done
};

/// Whether a file is text or JSONL, or a folder holds such files besides tokens that were made of some. False for what
/// is not there.
bool holds_text(const std::filesystem::path& path);

/// A request that was looked at: the tokenizer is read, the files are listed.
class Tokenizing {
 public:
  /// Throws InputError for what cannot be used: a tokenizer that is not supported, files that are missing, no text.
  explicit Tokenizing(const TokenizeRequest& request);
  ~Tokenizing();
  Tokenizing(Tokenizing&&) noexcept;

  /// The one that was read.
  const text::Tokenizer& tokenizer() const;
  /// The id behind each document; nothing where there is none.
  std::optional<text::TokenId> end_token() const;
  /// 16 digits that differ where files, their sizes or times, the tokenizer or what is asked of it do.
  const std::string& made_of() const;

  /// Writes into a folder, which is made: every text's ids in order, within the tokenizer's template, then the end
  /// token. What an earlier call did not end is gone on with; a complete folder stays as it is. All of it is the same
  /// on any number of threads. Throws InputError for a folder of other texts and for JSONL that cannot be read, with
  /// file and line. `report` is called now and then.
  Tokenized write(const std::filesystem::path& folder, const std::function<void(const TokenizeProgress&)>& report = {});

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace fsdp::data
