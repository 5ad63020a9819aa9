// SPDX-License-Identifier: Apache-2.0
/// @file
/// Splits text files and JSON records into units of about a MiB that are tokenized independently, in order.
///
/// A document is a text file, or a record: a line of JSONL, or an entry of an array. Long texts are cut where the cut
/// does not change the tokens: after a newline, if the text around it has the same ids encoded whole and in two halves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/file.hpp>
#include <tessera/text/tokenizer.hpp>

#include "records.hpp"

namespace fsdp::data {

/// The beginning of a unit, from which tokenizing can be resumed.
struct TextPlace {
  std::int64_t file = 0;  ///< index of the file; the number of files at the end
  std::int64_t byte = 0;
  std::int64_t line = 1;  ///< of JSONL; of an array the record

  friend bool operator==(const TextPlace&, const TextPlace&) = default;
};

/// A text file.
struct TextFile {
  std::filesystem::path path;
  std::int64_t bytes = 0;
  TextForm form = TextForm::text;
};

/// The part of a document in a unit, or a record.
struct TextPiece {
  std::size_t begin = 0, end = 0;  ///< in the unit's bytes
  std::int64_t file = 0, line = 0;
  bool opens = true, closes = true;  ///< contains the document's first byte; its last byte
};

/// A unit of text: bytes and their pieces.
struct TextUnit {
  TextPlace begin, next;
  std::string bytes;
  std::vector<TextPiece> pieces;

  std::string_view text(const TextPiece& piece) const {
    return std::string_view(bytes).substr(piece.begin, piece.end - piece.begin);
  }
};

/// Returns whether the text around a place has the same ids encoded whole and in two halves. `at`: after a newline.
bool is_seam(const text::Tokenizer& tokenizer, std::string_view text, std::size_t at);

/// Reads files as units.
class TextUnits {
 public:
  static constexpr std::int64_t unit_bytes = 1 << 20;
  static constexpr std::int64_t most_bytes = 1 << 30;  ///< longest line, and longest text without a place to cut

  TextUnits(const text::Tokenizer& tokenizer, std::vector<TextFile> files, TextPlace from = {});

  /// Reads the next unit; returns false at the end. Throws InputError if a file has changed or cannot be cut.
  bool next(TextUnit& unit);

 private:
  void read(std::int64_t bytes, std::string& into) const;
  void take_text(TextUnit& unit);
  void take_lines(TextUnit& unit);
  void take_array(TextUnit& unit);
  void open_array();
  std::size_t take_records(TextUnit& unit, std::size_t begin, bool last);
  void enter_file();
  void leave_file();

  const text::Tokenizer* tokenizer_;
  std::vector<TextFile> files_;
  TextPlace place_;
  FileDescriptor file_;
};

}  // namespace fsdp::data
