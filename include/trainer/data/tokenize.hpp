// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tokenizes text and JSON records into llm.c's token files, once, for `tessera tokenize` and for --data of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/text/tokenizer.hpp>
#include <tessera/trainer/data/data_inputs.hpp>

namespace fsdp::data {

/// The inputs and options of tokenizing.
struct TokenizeRequest {
  std::vector<std::filesystem::path> inputs = {};  ///< files or folders; .jsonl, .ndjson and .json contain records
  std::filesystem::path tokenizer = {};            ///< tokenizer.json, or its folder
  std::string field = "text";                      ///< the key of the text in a JSON record
  std::string end_token = {};                      ///< token after each document; see text::end_token_of
  std::int64_t shard_tokens = 100'000'000;         ///< largest number of tokens per output file
  std::int64_t threads = 0;                        ///< number of threads; 0: all cores
};

/// Progress of tokenizing.
struct TokenizeProgress {
  std::int64_t bytes = 0, all_bytes = 0;  ///< bytes of text processed so far; total
  std::int64_t documents = 0, tokens = 0;
};

/// The result of tokenizing.
struct Tokenized {
  TokenizeProgress total = {};
  std::int64_t files = 0;             ///< token files in the folder
  LeftOut left_out = {};              ///< input files and folder entries that were skipped
  std::int64_t replaced_bytes = 0;    ///< bytes of text that are not Unicode and were read as U+FFFD
  std::int64_t resumed_at_bytes = 0;  ///< bytes of text that an earlier call had tokenized
  bool already_complete = false;      ///< an earlier call had finished; nothing was written
};

/// Returns whether a path is a file with text or records, or a folder with such files. False for a path that does not
/// exist, and for a folder of tokens that `tessera tokenize` wrote.
bool holds_text(const std::filesystem::path& path);

/// A checked request: its tokenizer is read and its files are listed.
class Tokenizing {
 public:
  /// Throws InputError for an unsupported tokenizer, for missing files or text, and for files in other formats.
  explicit Tokenizing(const TokenizeRequest& request);

  const text::Tokenizer& tokenizer() const;  ///< the tokenizer of the request
  /// The token after each document; empty if documents have no end token.
  std::optional<text::TokenId> end_token() const;
  const std::vector<std::string>& warnings() const;  ///< warnings about the files for the user, one sentence each
  /// A hash in hexadecimal of the files' paths, sizes and modification times, the tokenizer and the options.
  const std::string& made_of() const;

  /// Writes token files into a folder, which it creates if needed. Each document's ids, with the special tokens of the
  /// tokenizer's template, are followed by the end token. If an earlier call was interrupted, continues where it
  /// stopped; a complete folder stays unchanged. The output does not depend on the number of threads. Calls `report`
  /// after each batch of text. Throws InputError if the folder contains tokens of other texts, if records cannot be
  /// read (with file and line), or if more than 1 % of a file is not Unicode.
  Tokenized write(const std::filesystem::path& folder, const std::function<void(const TokenizeProgress&)>& report = {});

  struct State;

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace fsdp::data
