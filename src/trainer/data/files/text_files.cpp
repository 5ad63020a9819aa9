// SPDX-License-Identifier: Apache-2.0
#include "text_files.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/data/tokenize.hpp>

#include "../../../fsdp/core/paths.hpp"
#include "../../../fsdp/core/strings.hpp"
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
  begins_record = !is_named_json(path) && line.starts_with('{') && nlohmann::json::accept(line);
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

}  // namespace fsdp::data
