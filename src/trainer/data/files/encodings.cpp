// SPDX-License-Identifier: Apache-2.0
#include "encodings.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <range/v3/view/enumerate.hpp>

#include <tessera/fsdp/core/error.hpp>

#include "../../../text/unicode/code_points.hpp"
#include "input_files.hpp"

namespace fsdp::data {
namespace {

using namespace std::string_view_literals;

constexpr std::int64_t most_invalid = 100;  // one invalid byte is accepted in this number of bytes

bool is_too_many(std::int64_t invalid, std::int64_t bytes) { return invalid > bytes / most_invalid; }

/// The number of bytes that are not UTF-8, and the offset of the first one.
struct Invalid {
  std::int64_t count = 0, first = -1;

  /// Reads a text that begins at byte `begin` of the file. Returns the number of bytes read: a character that is cut
  /// off by the end of the text is not read, unless the text is the `last` one.
  std::size_t read(std::string_view text, std::int64_t begin, bool last) {
    std::size_t at = 0;
    for (;;) {
      at += text::valid_length(text.substr(at));
      if (at == text.size()) return at;
      const text::Utf8Step step = text::utf8_step(text.substr(at));
      if (step.cut && !last) return at;
      if (first < 0) first = begin + static_cast<std::int64_t>(at);
      count += static_cast<std::int64_t>(step.length);
      at += step.length;
    }
  }
};

/// Appends the content of a JSON string as Unicode. Returns the number of bytes that were replaced.
std::int64_t append_unicode(std::string_view text, bool is_key, std::string& out) {
  constexpr char32_t private_use = 0xF0000;
  std::int64_t replaced = 0;
  const auto replace = [&](std::size_t length, std::size_t bytes, char32_t code) {
    is_key ? text::append_utf8(out, private_use + code) : void(out += text::replacement);
    replaced += static_cast<std::int64_t>(bytes);
    text.remove_prefix(length);
  };
  while (!text.empty()) {
    std::size_t whole = std::min(text.find('\\'), text::valid_length(text));
    if (whole == 0 && text.front() == '\\') {
      const text::UnicodeEscape escape = text::unicode_escape(text);
      if (text::is_surrogate(escape.code)) {
        replace(escape.length, 1, escape.code);  // the escape stands for one byte if Python wrote it
        continue;
      }
      whole = std::min(std::max<std::size_t>(escape.length, 2), text.size());
    }
    if (whole == 0) {
      const std::size_t length = text::utf8_step(text).length;
      replace(length, length, static_cast<unsigned char>(text.front()));
      continue;
    }
    out += text.substr(0, whole);
    text.remove_prefix(whole);
  }
  return replaced;
}

/// Returns whether a text has an escape of a surrogate, alone or in a pair.
bool has_surrogates(std::string_view text) {
  for (std::size_t at = 0; (at = text.find("\\u", at)) != text.npos; at += 2)
    if (const auto escape = text::unicode_escape(text.substr(at));
        escape.length == 12 || text::is_surrogate(escape.code))
      return true;
  return false;
}

/// Returns the index after the end of the string whose opening quote is at `at`; npos if the string has no end.
std::size_t string_end(std::string_view text, std::size_t at) {
  for (++at; (at = text.find_first_of("\\\"", at)) != text.npos && text[at] == '\\';) at += 2;
  return at == text.npos ? at : at + 1;
}

Invalid invalid_of(const OpenFile& file) {
  constexpr std::int64_t at_a_time = 1 << 20;
  Invalid found;
  std::string text;
  for (std::int64_t at = 0; at < file.bytes();) {
    text.resize(static_cast<std::size_t>(std::min(at_a_time, file.bytes() - at)));
    file.read(at, text);
    at += static_cast<std::int64_t>(found.read(text, at, at + std::ssize(text) == file.bytes()));
  }
  return found;
}

}  // namespace

void require_no_wide_encoding(std::string_view head, const std::filesystem::path& path) {
  constexpr std::array marks = {std::pair{"\xFF\xFE\0\0"sv, "UTF-32"sv}, std::pair{"\0\0\xFE\xFF"sv, "UTF-32"sv},
                                std::pair{"\xFF\xFE"sv, "UTF-16"sv}, std::pair{"\xFE\xFF"sv, "UTF-16"sv}};
  for (const auto& [mark, name] : marks)
    require<InputError>(!head.starts_with(mark), "data: ", path.string(), " begins with the byte order mark of ", name,
                        ", and text is read as UTF-8; convert it: iconv -f ", name, " -t UTF-8");
}

void refuse_nul(const std::filesystem::path& path) {
  const std::string head = OpenFile(path).head();
  const std::size_t pairs = head.size() / 2;
  std::array<std::size_t, 2> zeros = {};
  for (const auto& [i, byte] : ranges::views::enumerate(std::string_view(head).substr(0, 2 * pairs)))
    zeros[i % 2] += byte == '\0';
  for (const std::size_t half : {0, 1})
    require<InputError>(pairs < 2 || zeros[half] * 4 < pairs * 3 || zeros[1 - half] * 16 > pairs,
                        "data: ", path.string(),
                        " is UTF-16 without a byte order mark: every second byte is 0, and text is read as UTF-8; "
                        "convert it: iconv -f UTF-16",
                        half == 1 ? "LE" : "BE", " -t UTF-8");
  throw InputError(message("data: ", path.string(), " has a NUL at byte ", head.find('\0'),
                           ", and is text by its name, which has none; mend it, convert it if it is UTF-16 or UTF-32 "
                           "(iconv -t UTF-8), or leave it out"));
}

std::int64_t invalid_bytes(std::string_view text) {
  Invalid found;
  found.read(text, 0, true);
  return found.count;
}

void require_utf8(const std::filesystem::path& path, std::int64_t invalid, std::int64_t bytes) {
  if (!is_too_many(invalid, bytes)) return;
  const Invalid found = invalid_of(OpenFile(path));
  throw InputError(message("data: ", path.string(), " is not UTF-8: ", found.count, " of its ", bytes,
                           " bytes are not, the first at byte ", found.first,
                           "; convert it by iconv -f ENCODING -t UTF-8, such as GB18030, SHIFT_JIS or LATIN1"));
}

void require_utf8(const std::filesystem::path& path) {
  const OpenFile file(path);
  const std::string head = file.head();
  Invalid found;
  found.read(head, 0, std::ssize(head) == file.bytes());
  if (is_too_many(found.count, std::ssize(head))) require_utf8(path, invalid_of(file).count, file.bytes());
}

std::optional<UnicodeRecord> unicode_record(std::string_view json,
                                            const std::function<bool(std::string_view key)>& reads) {
  if (text::valid_length(json) == json.size() && !has_surrogates(json)) return std::nullopt;
  UnicodeRecord made;
  std::int64_t depth = 0;
  bool counts = false;
  for (std::size_t at = 0; at < json.size();) {
    const std::size_t quote = std::min(json.find('"', at), json.size());
    for (; at < quote; ++at) {
      depth += json[at] == '{' || json[at] == '[';
      depth -= json[at] == '}' || json[at] == ']';
      made.json += json[at];
    }
    if (at == json.size()) break;
    const std::size_t end = string_end(json, at);
    if (end == json.npos) return std::nullopt;  // not JSON, which the JSON parser will report
    const std::string_view content = json.substr(at + 1, end - at - 2);
    const std::size_t next = json.find_first_not_of(" \t\r\n", end);
    const bool is_key = next != json.npos && json[next] == ':';
    if (is_key && depth == 1) counts = reads(content);
    made.json += '"';
    const std::int64_t replaced = append_unicode(content, is_key, made.json);
    made.json += '"';
    if (!is_key && counts) made.replaced += replaced;
    at = end;
  }
  return made;
}

void require_unicode(const std::filesystem::path& path, std::int64_t replaced, std::int64_t bytes, std::int64_t line) {
  require<InputError>(!is_too_many(replaced, bytes), "data: ", path.string(), ": ", replaced, " of its ", bytes,
                      " bytes up to line ", line, " are not Unicode text: escapes of half a character, such as ",
                      "\\udcb2, or bytes that are not UTF-8; write the records anew with their texts in UTF-8");
}

}  // namespace fsdp::data
