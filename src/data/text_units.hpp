// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text files and JSONL as units of about a MiB, which are tokenized apart from each other, in order.
///
/// A document is a text file, or a line of JSONL. Long texts are cut where their tokens are the same with and without
/// the cut: behind a newline around which the text, encoded whole and in two halves, becomes the same ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/core/file.hpp>
#include <fsdp/text/tokenizer.hpp>

namespace fsdp::data {

/// Where a unit begins: enough to go on from there.
struct TextPlace {
  std::int64_t file = 0;  ///< its number; that of all files is the end
  std::int64_t byte = 0;
  std::int64_t line = 1;  ///< of JSONL

  friend bool operator==(const TextPlace&, const TextPlace&) = default;
};

/// A text file. Its size and time of change tell whether it is still the same.
struct TextFile {
  std::filesystem::path path;
  std::int64_t bytes = 0;
  bool lines = false;  ///< JSONL: .jsonl or .ndjson
};

/// What a unit holds of one document, or a line that holds one.
struct TextPiece {
  std::size_t begin = 0, end = 0;  ///< in the unit's bytes
  std::int64_t file = 0, line = 0;
  bool opens = true, closes = true;  ///< it has the document's first byte, its last
};

struct TextUnit {
  TextPlace begin, next;
  std::string bytes;
  std::vector<TextPiece> pieces;

  std::string_view text(const TextPiece& piece) const {
    return std::string_view(bytes).substr(piece.begin, piece.end - piece.begin);
  }
};

/// Whether encoding what is around a place makes the same ids as encoding its two sides. `at`: behind a newline.
bool is_seam(const text::Tokenizer& tokenizer, std::string_view text, std::size_t at);

class TextUnits {
 public:
  static constexpr std::int64_t unit_bytes = 1 << 20;
  static constexpr std::int64_t most_bytes = 1 << 30;  ///< of a line, or of text without a place to cut

  TextUnits(const text::Tokenizer& tokenizer, std::vector<TextFile> files, TextPlace from = {});

  /// The next unit; false at the end. Throws InputError where a file changed or cannot be cut.
  bool next(TextUnit& unit);

 private:
  void read(std::int64_t bytes, std::string& into) const;
  void take_text(TextUnit& unit);
  void take_lines(TextUnit& unit);
  void enter_file();
  void leave_file();

  const text::Tokenizer* tokenizer_;
  std::vector<TextFile> files_;
  TextPlace place_;
  FileDescriptor file_;
};

}  // namespace fsdp::data
