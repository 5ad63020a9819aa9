// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tokenizers in Hugging Face's format tokenizer.json: byte-level BPE and SentencePiece's BPE.
///
/// Ids are the same as those of the Python package `tokenizers`. Reading a file with an unsupported feature is an
/// error; docs/tokenizers.md lists the supported ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::text {

using TokenId = std::uint32_t;

/// The special tokens that a tokenizer's post-processor puts around a text.
struct TextFrame {
  std::vector<TokenId> before, after;
};

/// A parsed and checked tokenizer. Copies share its data; several threads can call its functions at once.
class Tokenizer {
 public:
  /// Reads a tokenizer.json, or the one in a folder. Throws InputError for its contents, FileError if it cannot be
  /// read.
  static Tokenizer read(const std::filesystem::path& path);
  /// Parses the text of such a file. `source`: its name for errors.
  static Tokenizer parse(std::string_view json, const std::string& source);

  /// Encodes a text. Bytes that are not valid UTF-8 are read as U+FFFD, one per maximal invalid part, as in Python's
  /// errors="replace". `special`: also adds the special tokens that the post-processor puts around a text.
  std::vector<TokenId> encode(std::string_view text, bool special = true) const;
  /// The same, but appends to `ids`.
  void append_encoded(std::string_view text, bool special, std::vector<TokenId>& ids) const;

  /// Encodes a text that continues another one: adds neither special tokens nor a leading space. Appends to `ids`.
  void append_following(std::string_view text, std::vector<TokenId>& ids) const;

  /// Decodes ids to valid UTF-8. Skips unknown ids; also special tokens if `skip_special`.
  std::string decode(std::span<const TokenId> ids, bool skip_special = true) const;

  /// Returns the tokens that `special` adds to a text. Throws InputError if the post-processor does not hold the text
  /// exactly once.
  TextFrame frame() const;

  std::int64_t vocabulary_size() const;                        ///< one more than the largest id
  std::optional<TokenId> id_of(std::string_view token) const;  ///< of the token's name in the file; empty if unknown
  std::optional<std::string> name_of(TokenId id) const;        ///< the token's name in the file; empty if unknown
  /// Returns whether a token is special: `skip_special` skips it.
  bool is_special(TokenId id) const;
  /// Returns the ids below `vocabulary` that no token has.
  std::vector<TokenId> ids_without_token(std::int64_t vocabulary) const;

  /// What the user should know of the files, a sentence each: requests that are not followed, and known faults.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  friend class StreamDecoder;
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
  std::vector<std::string> warnings_;
};

/// Decodes ids one at a time. The strings that `push` and `finish` return, joined, equal `decode` of all ids, with one
/// exception: in a run of byte tokens <0x..> that becomes invalid after valid bytes, `decode` replaces all of them.
class StreamDecoder {
 public:
  /// `skip_special`: skip special tokens.
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special = true);

  std::string push(TokenId id);  ///< returns text that is final; holds back a character until all its bytes are there
  std::string finish();          ///< returns the rest and resets the decoder for a new text

 private:
  Tokenizer tokenizer_;
  bool skip_special_ = true;
  std::string bytes_;         // byte-level: bytes of an incomplete character
  std::vector<TokenId> ids_;  // otherwise: `given_` ids whose text was returned, then newer ones
  std::size_t given_ = 0;
  std::string given_text_;
};

}  // namespace fsdp::text
