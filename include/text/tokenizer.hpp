// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tokenizers in Hugging Face's format tokenizer.json: byte-level BPE and SentencePiece's BPE.
///
/// The ids equal the ids that the Python package `tokenizers` computes. A file with an unsupported feature is an error;
/// docs/tokenizers.md lists the supported features.
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

/// A parsed and checked tokenizer. Copies share its data; several threads can call its functions concurrently.
class Tokenizer {
 public:
  /// Reads a tokenizer.json; `path` is the file or its folder. Throws InputError if its contents are invalid or
  /// unsupported, FileError if it cannot be read.
  static Tokenizer read(const std::filesystem::path& path);
  /// Parses the text of a tokenizer.json. `source`: its name for errors.
  static Tokenizer parse(std::string_view json, const std::string& source);

  /// Encodes a text. Bytes that are not valid UTF-8 are read as U+FFFD, one per maximal invalid part, as in Python's
  /// errors="replace". `special`: also adds the special tokens that the post-processor puts around a text.
  std::vector<TokenId> encode(std::string_view text, bool special = true) const;
  /// Encodes a text like `encode`, but appends to `ids`.
  void append_encoded(std::string_view text, bool special, std::vector<TokenId>& ids) const;

  /// Encodes a text that continues another one: adds neither special tokens nor a leading space. Appends to `ids`.
  void append_following(std::string_view text, std::vector<TokenId>& ids) const;

  /// Decodes ids to valid UTF-8. Skips unknown ids; also special tokens if `skip_special`.
  std::string decode(std::span<const TokenId> ids, bool skip_special = true) const;

  /// Returns the special tokens that `encode` adds around a text. Throws InputError unless the post-processor contains
  /// the text exactly once.
  TextFrame frame() const;

  std::int64_t vocabulary_size() const;                        ///< one more than the largest id
  std::optional<TokenId> id_of(std::string_view token) const;  ///< the id of a token name in the file; empty if unknown
  std::optional<std::string> name_of(TokenId id) const;        ///< the token's name in the file; empty if unknown
  /// Returns whether a token is special, that is, omitted with `skip_special`.
  bool is_special(TokenId id) const;
  /// Returns the ids below `vocabulary` that are not assigned to a token.
  std::vector<TokenId> ids_without_token(std::int64_t vocabulary) const;

  /// Returns warnings for the user about the files: settings that are ignored, and known faults.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  friend class StreamDecoder;
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
  std::vector<std::string> warnings_;
};

/// Decodes ids one at a time. The concatenated results of `push` and `finish` equal `decode` of all ids, with one
/// exception: if a run of byte tokens <0x..> becomes invalid UTF-8 after valid bytes, `decode` replaces all bytes of
/// the run.
class StreamDecoder {
 public:
  /// `skip_special`: skip special tokens.
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special = true);

  std::string push(TokenId id);  ///< returns text that is final; withholds a character until all its bytes have arrived
  std::string finish();          ///< returns the rest and resets the decoder for a new text

 private:
  Tokenizer tokenizer_;
  bool skip_special_ = true;
  std::string bytes_;         // byte-level decoder: bytes of an incomplete character
  std::vector<TokenId> ids_;  // other decoders: `given_` ids whose text was returned, then newer ids
  std::size_t given_ = 0;
  std::string given_text_;
};

}  // namespace fsdp::text
