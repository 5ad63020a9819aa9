// SPDX-License-Identifier: Apache-2.0
/// @file
/// Selects the files of --data that a tokenizer reads, and splits their text and JSON records into units of about a MiB
/// that are tokenized independently, in order.
///
/// A document is a text file, or a record: a line of JSONL, or an entry of an array. Long texts are cut where the cut
/// does not change the tokens: after a newline, if the text around it has the same ids encoded whole and in two halves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/text/tokenizer.hpp>
#include <tessera/trainer/data/data_inputs.hpp>

#include "input_files.hpp"

namespace fsdp::data {

/// The content of a file of --data, as determined by its name and first bytes.
enum class TextForm : std::uint8_t {
  text,    ///< one document
  lines,   ///< JSONL: a record in each line
  array,   ///< one JSON array of records
  object,  ///< one JSON object over several lines, which does not contain records
};

/// Returns "line" or "record": the term for a place in a file of this form.
constexpr std::string_view place_name(TextForm form) { return form == TextForm::array ? "record" : "line"; }

/// The beginning of a unit, from which tokenizing can be resumed.
struct TextPlace {
  std::int64_t file = 0;  ///< index of the file; the number of files at the end
  std::int64_t byte = 0;
  std::int64_t line = 1;  ///< number of the line in JSONL; number of the record in an array

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
  std::size_t begin = 0, end = 0;  ///< offsets in the unit's bytes
  std::int64_t file = 0, line = 0;
  bool opens = true, closes = true;  ///< whether it contains the document's first byte; its last byte
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

/// Reads JSON piece by piece, and tracks the depth of open brackets outside of strings.
class Brackets {
 public:
  /// Returns the position from `at` on of the next comma or closing bracket outside of all others; npos if none.
  std::size_t next_end(std::string_view text, std::size_t at);
  void read(char c) {
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
      return;
    }
    in_string_ = c == '"';
    depth_ += c == '{' || c == '[';
    depth_ -= c == '}' || c == ']';
  }
  bool in_string() const { return in_string_; }
  std::int64_t depth() const { return depth_; }

 private:
  bool in_string_ = false, escaped_ = false;
  std::int64_t depth_ = 0;
};

/// Returns whether the text around a place has the same ids encoded whole and in two halves. `at`: after a newline.
bool is_cut_point(const text::Tokenizer& tokenizer, std::string_view text, std::size_t at);

/// Reads files as units.
class TextUnits {
 public:
  static constexpr std::int64_t unit_bytes = 1 << 20;
  /// Largest length of a line, and of a text without a place to cut.
  static constexpr std::int64_t most_bytes = 1 << 30;

  TextUnits(const text::Tokenizer& tokenizer, std::vector<TextFile> files, TextPlace from = {});

  /// Reads the next unit; returns false at the end. Throws InputError if a file has changed or cannot be cut.
  bool next(TextUnit& unit);

 private:
  void read(std::int64_t bytes, std::string& into) const;
  void take_text(const TextFile& file, TextUnit& unit);
  void take_lines(const TextFile& file, TextUnit& unit);
  void take_array(const TextFile& file, TextUnit& unit);
  std::size_t take_records(const TextFile& file, TextUnit& unit, std::size_t begin, bool last);

  const text::Tokenizer* tokenizer_;
  std::vector<TextFile> files_;
  TextPlace place_;
  std::optional<OpenFile> open_;  // file of the current position, once it is read
};

/// Encodes all units on all threads, in batches of several units per thread. Calls `use(unit, encoded)` for each unit
/// in order, and `after()` after each batch. An exception of `encode` is rethrown in the unit's turn.
template <class Encode, class Use, class After>
void encode_units(TextUnits& units, int threads, int per_thread, const Encode& encode, const Use& use,
                  const After& after) {
  std::vector<TextUnit> batch(static_cast<std::size_t>(threads * per_thread));
  std::vector<std::invoke_result_t<Encode, const TextUnit&>> encoded(batch.size());
  std::vector<std::exception_ptr> errors(batch.size());
  for (std::size_t count = batch.size(); count == batch.size();) {
    count = 0;
    while (count < batch.size() && units.next(batch[count])) ++count;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (std::size_t i = 0; i < count; ++i) {
      try {
        encoded[i] = encode(batch[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (errors[i]) std::rethrow_exception(errors[i]);
      use(batch[i], encoded[i]);
    }
    after();
  }
}

/// For caches: increase it when the same files are read differently.
inline constexpr std::int64_t reading_version = 2;

/// How a reader handles a file.
enum class Reading : std::uint8_t {
  text,     ///< reads the file
  binary,   ///< skips the file: it contains a NUL
  another,  ///< skips the file: it has another known format
};

/// The properties of a file that its name and first bytes determine.
struct TextCandidate {
  explicit TextCandidate(const std::filesystem::path& path);  ///< throws InputError for text in UTF-16 or UTF-32

  std::int64_t bytes = 0;
  Reading reading = Reading::text;
  FileKind kind = {};  ///< the known format if `reading` is another
  TextForm form = TextForm::text;
  std::int64_t mark_bytes = 0;  ///< size of the byte order mark at its beginning
  /// Whether it is read as text, because of its name, although its first line is a JSON object.
  bool begins_record = false;
};

/// Files of text, and the skipped files.
struct TextFiles {
  std::vector<TextFile> files = {};
  std::int64_t all_bytes = 0;
  LeftOut left_out = {};
  std::vector<std::string> warnings = {};
};

/// Lists the texts below paths. Files in folders that are not text are skipped. Warns of the first file that begins
/// with a record and is read as text. Throws InputError for a file that is specified by its own path and has a known
/// format, for text that is not UTF-8, and for JSON without records.
TextFiles text_files(std::span<const std::filesystem::path> paths);

/// Throws InputError for TextForm::object. `left_out`: skipped files of the file's folder, for the message.
void require_records(TextForm form, const std::filesystem::path& path, const LeftOut& left_out = {});

/// Returns whether a file's extension is one of JSON.
bool is_named_json(const std::filesystem::path& path);

/// Skips a file that is not text. Throws InputError for a placeholder, and for a known format with its own path.
void leave_out(const TextCandidate& candidate, const InputFile& file, LeftOut& left_out);

/// Returns "there is no text in PATH and the others (left out: ...); ADVICE" for an error.
std::string no_text(std::span<const std::filesystem::path> paths, const LeftOut& left_out);

}  // namespace fsdp::data
