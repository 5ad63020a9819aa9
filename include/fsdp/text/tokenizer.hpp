// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text to tokens and back, as a Hugging Face tokenizer.json says: byte-level BPE and SentencePiece's BPE.
///
/// Ids are those of the Python package `tokenizers`. A file that asks for what is not supported is refused with one
/// sentence; docs/tokenizers.md lists what is.
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

/// What a tokenizer's template puts around a text.
struct TextFrame {
  std::vector<TokenId> before, after;
};

/// A tokenizer that was read and checked. Copies share it; all functions may be called by any number of threads.
class Tokenizer {
 public:
  /// A tokenizer.json, or a folder that holds one. Throws InputError, and FileError where it cannot be read.
  static Tokenizer read(const std::filesystem::path& path);
  /// The same from the file's text; `source` is what errors call it.
  static Tokenizer parse(std::string_view json, const std::string& source);

  /// The ids of a text. Bytes that are not UTF-8 are read as U+FFFD, one for each longest part of a character, as
  /// Python's errors="replace" does. `special`: with the tokens that the file's template puts around a text.
  std::vector<TokenId> encode(std::string_view text, bool special = true) const;
  /// The same, behind what `ids` holds already.
  void append_encoded(std::string_view text, bool special, std::vector<TokenId>& ids) const;

  /// The ids of a text that goes on where another was cut: nothing is put before it, neither template nor space.
  void append_following(std::string_view text, std::vector<TokenId>& ids) const;

  /// The text of ids, valid UTF-8. Ids of no token are passed over, and special tokens where `skip_special`.
  std::string decode(std::span<const TokenId> ids, bool skip_special = true) const;

  /// What `special` adds to a text. Throws InputError for a template that repeats the text or leaves it out.
  TextFrame frame() const;

  std::int64_t vocabulary_size() const;                        ///< one more than the largest id
  std::optional<TokenId> id_of(std::string_view token) const;  ///< by its name in the file
  std::optional<std::string> name_of(TokenId id) const;        ///< in the file
  /// Whether decoding may pass it over.
  bool is_special(TokenId id) const;

 private:
  friend class StreamDecoder;
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

/// Decodes ids as they come. All that `push` and `finish` return, joined, is what `decode` makes of the ids: but for
/// byte tokens <0x..> that turn out invalid behind ones that were valid, of which `decode` replaces all.
class StreamDecoder {
 public:
  /// `skip_special`: special tokens give no text.
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special = true);

  std::string push(TokenId id);  ///< text that no later id can change; a character whose bytes are not all there waits
  std::string finish();          ///< the rest; then a new text may begin

 private:
  Tokenizer tokenizer_;
  bool skip_special_ = true;
  std::string bytes_;         // byte-level: of a character that is not whole
  std::vector<TokenId> ids_;  // otherwise: `given_` ids whose text was given out, and what came since
  std::size_t given_ = 0;
  std::string given_text_;
};

}  // namespace fsdp::text
