// SPDX-License-Identifier: Apache-2.0
#include "text_files.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/data/tokenize.hpp>

#include "../../../fsdp/core/json/strict_json.hpp"
#include "../../../fsdp/core/paths.hpp"
#include "../../../fsdp/core/strings.hpp"
#include "../../../fsdp/core/utf8.hpp"
#include "../formats/token_files.hpp"
#include "encodings.hpp"

namespace fsdp::data {
namespace {

constexpr std::string_view binary_reason = "binary";

std::string lower_extension(const std::filesystem::path& path) { return ascii_lower(path.extension().string()); }

/// Returns whether the object at the file's beginning extends over several lines: then the file is not JSONL.
bool spans_lines(const OpenFile& file) {
  constexpr std::int64_t at_a_time = 1 << 16, most = 1 << 30;
  const std::int64_t bytes = std::min(file.bytes(), most);
  Brackets brackets;
  std::string text;
  for (std::int64_t at = 0; at < bytes; at += std::ssize(text)) {
    text.resize(static_cast<std::size_t>(std::min(at_a_time, bytes - at)));
    file.read(at, text);
    for (const char c : text) {
      const bool began = brackets.depth() > 0;
      if (c == '\n' && began) return !brackets.in_string();
      brackets.read(c);
      if (began && brackets.depth() <= 0) return false;
    }
  }
  return false;
}

/// Returns a file's form. Files named .jsonl, .jsonlines, .jl, .ndjson and .json (in upper or lower case) contain JSON;
/// .json only if it begins with a bracket. `text`: the first bytes of the file.
TextForm form_of(const OpenFile& file, std::string_view text) {
  if (!is_named_json(file.path())) return TextForm::text;
  if (text.starts_with(utf8_mark)) text.remove_prefix(utf8_mark.size());
  const std::size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  if (text.substr(first, 1) == "[") return TextForm::array;
  if (text.substr(first, 1) == "{") return spans_lines(file) ? TextForm::object : TextForm::lines;
  return lower_extension(file.path()) == ".json" ? TextForm::text : TextForm::lines;
}

constexpr std::size_t looked_around = 1024;  // number of bytes to compare on each side of a cut
constexpr int most_tries = 64;               // number of newlines to try before more text is read

/// Returns the last position where an incomplete text can be cut; 0 if there is none.
std::size_t last_cut_point(const text::Tokenizer& tokenizer, std::string_view text) {
  std::size_t end = text.size() - std::min(text.size(), looked_around);
  for (int tries = 0; tries < most_tries && end > 0; ++tries) {
    const std::size_t newline = text.rfind('\n', end - 1);
    if (newline == text.npos) return 0;
    if (is_cut_point(tokenizer, text, newline + 1)) return newline + 1;
    end = newline;
  }
  return 0;
}

}  // namespace

bool is_named_json(const std::filesystem::path& path) {
  const std::string extension = lower_extension(path);
  constexpr std::array<std::string_view, 5> known = {".jsonl", ".jsonlines", ".jl", ".ndjson", ".json"};
  return std::ranges::find(known, extension) != known.end();
}

TextCandidate::TextCandidate(const std::filesystem::path& path) {
  const OpenFile file(path);
  bytes = file.bytes();
  const std::string head = file.head();
  if (std::optional<FileKind> known = known_kind(head)) {
    reading = Reading::another;
    kind = *std::move(known);
    return;
  }
  require_no_wide_encoding(head, path);
  if (head.find('\0') != head.npos) {
    reading = Reading::binary;
    return;
  }
  form = form_of(file, head);
  mark_bytes = head.starts_with(utf8_mark) ? std::ssize(utf8_mark) : 0;
  const std::string_view line = std::string_view(head).substr(0, head.find('\n'));
  begins_record = !is_named_json(path) && line.starts_with('{') && !json_value(line).is_discarded();
}

void leave_out(const TextCandidate& candidate, const InputFile& file, LeftOut& left_out) {
  const bool matters = file.named || candidate.kind.missing;
  require<InputError>(candidate.reading != Reading::another || !matters, "data: ", file.path.string(), " is ",
                      candidate.kind.name, ", which is not read; ", candidate.kind.advice);
  const std::string extension = lower_extension(file.path);
  const bool has_nul = candidate.reading == Reading::binary &&
                       (is_named_json(file.path) || extension == ".txt" || extension == ".text" || extension == ".md");
  if (has_nul && file.named) refuse_nul(file.path);
  const std::string_view binary = has_nul ? "texts with a NUL" : binary_reason;
  left_out.add(candidate.reading == Reading::binary ? binary : candidate.kind.name, file.path, true);
}

TextFiles text_files(std::span<const std::filesystem::path> paths) {
  const InputFiles inputs = input_files(paths);
  TextFiles found{.left_out = inputs.left_out};
  for (const InputFile& file : inputs.files) {
    const TextCandidate candidate(file.path);
    if (candidate.reading != Reading::text) {
      leave_out(candidate, file, found.left_out);
    } else if (candidate.bytes > 0) {
      found.files.push_back({.path = file.path, .bytes = candidate.bytes, .form = candidate.form});
      found.all_bytes += candidate.bytes;
      if (candidate.begins_record && found.warnings.empty())
        found.warnings.push_back(message("data: ", file.path.string(),
                                         " begins with a record of JSON, and is read as text, by its name; rename it "
                                         "to .jsonl to read the texts of its records"));
    }
  }
  for (const TextFile& file : found.files) {
    require_records(file.form, file.path, found.left_out);
    if (file.form == TextForm::text) require_utf8(file.path);
  }
  return found;
}

void require_records(TextForm form, const std::filesystem::path& path, const LeftOut& left_out) {
  require<InputError>(
      form != TextForm::object, "data: ", path.string(),
      " is a JSON object over several lines, and records are lines of JSON, or the entries of one "
      "array; write each record into a line, or leave the file out, or name it .txt to read it as it stands",
      left_out.empty() ? "" : " (" + left_out.text() + ")");
}

std::string no_text(std::span<const std::filesystem::path> paths, const LeftOut& left_out) {
  std::string text = message("there is no text in ", paths.empty() ? "no file" : paths.front().string(),
                             paths.size() > 1 ? " and the others" : "");
  if (!left_out.empty()) text += message(" (", left_out.text(), ")");
  if (left_out.count(binary_reason) > 0)
    text += "; if that holds tokens alone, train on it with --data-format u16 or u32";
  return text;
}

bool holds_text(const std::filesystem::path& path) {
  if (!path_exists(path) || read_token_folder(path)) return false;
  const InputFiles inputs = input_files(std::span(&path, 1));
  return std::ranges::any_of(inputs.files, [](const InputFile& file) {
    const TextCandidate candidate(file.path);
    return candidate.bytes > 0 && candidate.reading == Reading::text;
  });
}

std::size_t Brackets::next_end(std::string_view text, std::size_t at) {
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (!in_string_ && depth_ <= 0 && (c == ',' || c == ']')) return at;
    read(c);
  }
  return text.npos;
}

bool is_cut_point(const text::Tokenizer& tokenizer, std::string_view text, std::size_t at) {
  std::size_t first = at - std::min(at, looked_around), last = std::min(text.size(), at + looked_around);
  while (first < at && continues_code_point(text[first])) ++first;
  while (last < text.size() && last > at && continues_code_point(text[last])) --last;
  std::vector<text::TokenId> halves = tokenizer.encode(text.substr(first, at - first), false);
  tokenizer.append_following(text.substr(at, last - at), halves);
  return halves == tokenizer.encode(text.substr(first, last - first), false);
}

TextUnits::TextUnits(const text::Tokenizer& tokenizer, std::vector<TextFile> files, TextPlace from)
    : tokenizer_(&tokenizer), files_(std::move(files)), place_(from) {}

bool TextUnits::next(TextUnit& unit) {
  unit = {.begin = place_, .next = place_, .bytes = {}, .pieces = {}};
  while (place_.file < std::ssize(files_) && std::ssize(unit.bytes) < unit_bytes) {
    const TextFile& file = files_[static_cast<std::size_t>(place_.file)];
    if (!open_) open_.emplace(file.path);
    require<InputError>(open_->bytes() == file.bytes, "data: ", file.path.string(), " had ", file.bytes,
                        " bytes at the start and has ", open_->bytes(),
                        " now; data must not change while they are tokenized");
    file.form == TextForm::text    ? take_text(file, unit)
    : file.form == TextForm::lines ? take_lines(file, unit)
                                   : take_array(file, unit);
    if (place_.byte < file.bytes) continue;
    open_.reset();
    place_ = {.file = place_.file + 1};
  }
  unit.next = place_;
  return unit.begin != unit.next;
}

/// Appends bytes of the open file from the current position on.
void TextUnits::read(std::int64_t bytes, std::string& into) const {
  const std::size_t before = into.size();
  into.resize(before + static_cast<std::size_t>(bytes));
  open_->read(place_.byte, std::span(into).subspan(before));
}

void TextUnits::take_text(const TextFile& file, TextUnit& unit) {
  const std::size_t begin = unit.bytes.size();
  TextPiece piece{.begin = begin, .file = place_.file, .opens = place_.byte == 0};
  const std::int64_t left = file.bytes - place_.byte;
  for (std::int64_t wanted = unit_bytes; wanted < left; wanted *= 2) {
    require<InputError>(wanted <= most_bytes, "data: ", file.path.string(), " has no newline at which its text can be ",
                        "cut, from byte ", place_.byte, " on for ", wanted,
                        " bytes; split it into files of documents, or write JSONL");
    unit.bytes.resize(begin);
    read(wanted, unit.bytes);
    const std::size_t cut_point = last_cut_point(*tokenizer_, std::string_view(unit.bytes).substr(begin));
    if (cut_point == 0) continue;
    unit.bytes.resize(begin + cut_point);
    piece.end = begin + cut_point;
    piece.closes = false;
    unit.pieces.push_back(piece);
    place_.byte += static_cast<std::int64_t>(cut_point);
    return;
  }
  unit.bytes.resize(begin);
  read(left, unit.bytes);
  piece.end = unit.bytes.size();
  unit.pieces.push_back(piece);
  place_.byte = file.bytes;
}

void TextUnits::take_lines(const TextFile& file, TextUnit& unit) {
  const std::size_t begin = unit.bytes.size();
  const std::int64_t left = file.bytes - place_.byte;
  std::size_t end = 0;  // end of the last complete line
  for (std::int64_t wanted = unit_bytes; end == 0; wanted *= 2) {
    require<InputError>(wanted <= most_bytes, "data: ", file.path.string(), " line ", place_.line, " has more than ",
                        most_bytes, " bytes; is it JSONL, one object a line?");
    unit.bytes.resize(begin);
    read(std::min(wanted, left), unit.bytes);
    end = wanted >= left ? unit.bytes.size() : unit.bytes.rfind('\n') + 1;
    if (end <= begin) end = 0;
  }
  unit.bytes.resize(end);
  place_.byte += static_cast<std::int64_t>(end - begin);
  for (std::size_t at = begin; at < end; ++place_.line) {
    const std::size_t newline = std::min(unit.bytes.find('\n', at), end);
    unit.pieces.push_back({.begin = at, .end = newline, .file = place_.file, .line = place_.line});
    at = newline + 1;
  }
}

void TextUnits::take_array(const TextFile& file, TextUnit& unit) {
  if (place_.byte == 0) place_.byte = static_cast<std::int64_t>(open_->head().find('[')) + 1;
  const std::size_t begin = unit.bytes.size();
  const std::int64_t left = file.bytes - place_.byte;
  for (std::int64_t wanted = unit_bytes;; wanted *= 2) {
    require<InputError>(wanted <= most_bytes, "data: ", file.path.string(), " record ", place_.line, " has more than ",
                        most_bytes, " bytes; is it an array of records?");
    unit.bytes.resize(begin);
    read(std::min(wanted, left), unit.bytes);
    const std::size_t end = take_records(file, unit, begin, wanted >= left);
    require<InputError>(end > begin || wanted < left, "data: ", file.path.string(), " ends within record ", place_.line,
                        "; its array has no end, and was cut off");
    if (end == begin) continue;
    unit.bytes.resize(end);
    place_.byte += static_cast<std::int64_t>(end - begin);
    return;
  }
}

/// Adds the array's records in the unit's bytes from `begin` on. Returns the end of the last complete record, after its
/// comma; after the array's end, the end of the file. `last`: whether the bytes are the rest of the file.
std::size_t TextUnits::take_records(const TextFile& file, TextUnit& unit, std::size_t begin, bool last) {
  const std::string_view text = unit.bytes;
  for (std::size_t at = begin;;) {
    const std::size_t end = Brackets().next_end(text, at);
    if (end == text.npos) return at;
    const bool blank = text.substr(at, end - at).find_first_not_of(" \t\r\n") == text.npos;
    const bool closes = text[end] == ']';
    require<InputError>(!blank || (closes && place_.line == 1), "data: ", file.path.string(), " record ", place_.line,
                        ": nothing stands where a record should be; it is not valid JSON");
    if (closes) {
      const std::size_t rest = text.find_first_not_of(" \t\r\n", end + 1);
      // Only white space may follow; the unit reads it too, so that its end is the end of the file.
      if (!last && rest == text.npos) return at;
      require<InputError>(rest == text.npos, "data: ", file.path.string(), ": more stands behind the array of ",
                          place_.line, " records; records are lines of objects, or the entries of one array");
    }
    if (!blank) unit.pieces.push_back({.begin = at, .end = end, .file = place_.file, .line = place_.line});
    ++place_.line;
    if (closes) return text.size();
    at = end + 1;
  }
}

}  // namespace fsdp::data
