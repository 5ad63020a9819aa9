// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files of JSON records: lines of objects, or one array. Finds records without parsing them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include <tessera/fsdp/core/file.hpp>
#include <tessera/trainer/data/left_out.hpp>

namespace fsdp::data {

/// What a file of --data holds, as its name and first bytes say.
enum class TextForm : std::uint8_t {
  text,    ///< one document
  lines,   ///< JSONL: a record in each line
  array,   ///< one JSON array of records
  object,  ///< one JSON object over several lines: no records
};

/// Returns a file's form. Files named .jsonl, .jsonlines, .jl, .ndjson and .json hold JSON, in any case of letters;
/// .json only if it begins with a bracket. `head`: its first bytes.
TextForm form_of(const FileDescriptor& file, const std::filesystem::path& path, std::span<const std::uint8_t> head);

/// Throws InputError for TextForm::object. `left_out`: of the file's folder, for the message.
void require_records(TextForm form, const std::filesystem::path& path, const LeftOut& left_out = {});

/// Returns whether a file's name says that it holds JSON.
bool is_named_json(const std::filesystem::path& path);
/// Returns whether a file's name says that it holds JSON or other text.
bool is_named_text(const std::filesystem::path& path);

/// Returns "line" or "record": what a place in a file of this form is called.
constexpr std::string_view place_name(TextForm form) { return form == TextForm::array ? "record" : "line"; }

/// Reads JSON piece by piece, and knows how deep brackets are open outside of strings.
class Brackets {
 public:
  /// Returns where, from `at` on, a comma or a closing bracket stands outside of all brackets and strings; npos if
  /// nowhere.
  std::size_t next_end(std::string_view text, std::size_t at);
  /// Reads one character.
  void read(char c) {
    if (in_string_) {
      if (escaped_)
        escaped_ = false;
      else if (c == '\\')
        escaped_ = true;
      else if (c == '"')
        in_string_ = false;
      return;
    }
    if (c == '"')
      in_string_ = true;
    else if (c == '{' || c == '[')
      ++depth_;
    else if (c == '}' || c == ']')
      --depth_;
  }
  bool in_string() const { return in_string_; }
  std::int64_t depth() const { return depth_; }

 private:
  bool in_string_ = false, escaped_ = false;
  std::int64_t depth_ = 0;
};

}  // namespace fsdp::data
