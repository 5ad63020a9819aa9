// SPDX-License-Identifier: Apache-2.0
#include "records.hpp"

#include <algorithm>
#include <array>
#include <string>

#include <tessera/fsdp/core/error.hpp>

#include "../../../fsdp/core/ascii.hpp"
#include "encodings.hpp"

namespace fsdp::data {
namespace {

constexpr std::string_view white_space = " \t\r\n";

std::string lower_extension(const std::filesystem::path& path) { return ascii_lower(path.extension().string()); }

/// Returns whether the object at the file's beginning has a line's end between its brackets: it is not JSONL.
bool spans_lines(const FileDescriptor& file, const std::filesystem::path& path) {
  constexpr std::int64_t at_a_time = 1 << 16, most = 1 << 30;
  const std::int64_t bytes = std::min(size_of(file, path), most);
  Brackets brackets;
  std::string text;
  for (std::int64_t at = 0; at < bytes; at += std::ssize(text)) {
    text.resize(static_cast<std::size_t>(std::min(at_a_time, bytes - at)));
    read_all(file, path, text.data(), text.size(), at);
    for (const char c : text) {
      const bool began = brackets.depth() > 0;
      if (c == '\n' && began) return !brackets.in_string();
      brackets.read(c);
      if (began && brackets.depth() <= 0) return false;
    }
  }
  return false;
}

}  // namespace

std::size_t Brackets::next_end(std::string_view text, std::size_t at) {
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (!in_string_ && depth_ <= 0 && (c == ',' || c == ']')) return at;
    read(c);
  }
  return text.npos;
}

bool is_named_json(const std::filesystem::path& path) {
  const std::string extension = lower_extension(path);
  constexpr std::array<std::string_view, 5> known = {".jsonl", ".jsonlines", ".jl", ".ndjson", ".json"};
  return std::ranges::find(known, extension) != known.end();
}

bool is_named_text(const std::filesystem::path& path) {
  const std::string extension = lower_extension(path);
  return is_named_json(path) || extension == ".txt" || extension == ".text" || extension == ".md";
}

TextForm form_of(const FileDescriptor& file, const std::filesystem::path& path, std::span<const std::uint8_t> head) {
  if (!is_named_json(path)) return TextForm::text;
  std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with(utf8_mark)) text.remove_prefix(utf8_mark.size());
  const std::size_t first = std::min(text.find_first_not_of(white_space), text.size());
  if (text.substr(first, 1) == "[") return TextForm::array;
  if (text.substr(first, 1) == "{") return spans_lines(file, path) ? TextForm::object : TextForm::lines;
  return lower_extension(path) == ".json" ? TextForm::text : TextForm::lines;
}

void require_records(TextForm form, const std::filesystem::path& path, const LeftOut& left_out) {
  require<InputError>(
      form != TextForm::object, "data: ", path.string(),
      " is a JSON object over several lines, and records are lines of JSON, or the entries of one "
      "array; write each record into a line, or leave the file out, or name it .txt to read it as it stands",
      left_out.empty() ? "" : " (" + left_out.text() + ")");
}

}  // namespace fsdp::data
