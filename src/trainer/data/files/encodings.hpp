// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text that is not UTF-8: refused where much of a file is, counted where little is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace fsdp::data {

inline constexpr std::string_view utf8_mark = "\xEF\xBB\xBF";  ///< byte order mark of UTF-8, which is no text

/// Throws InputError if a text begins with the byte order mark of UTF-16 or UTF-32. `head`: its first bytes.
void require_no_wide_encoding(std::string_view head, const std::filesystem::path& path);

/// Throws InputError for a file that is text by its name and has a NUL in its first bytes.
[[noreturn]] void refuse_nul(const std::filesystem::path& path);

/// Returns how many bytes of a text are not UTF-8; each becomes, with its neighbours, U+FFFD.
std::int64_t invalid_bytes(std::string_view text);

/// Throws InputError, with the place of the first one, if more than 1 % of a file's bytes are not UTF-8. `invalid`: how
/// many are not.
void require_utf8(const std::filesystem::path& path, std::int64_t invalid, std::int64_t bytes);

/// The same; reads all of a file only if its first bytes are suspicious.
void require_utf8(const std::filesystem::path& path);

/// A JSON record whose strings are Unicode.
struct UnicodeRecord {
  std::string json = {};
  std::int64_t replaced = 0;  ///< bytes of values that are read and became U+FFFD; an escape counts as one
};

/// Replaces what is not Unicode in the strings of a record: bytes that are not UTF-8, and escapes of half a character
/// (\udcb2 alone), which Python writes for such bytes. In a value each becomes U+FFFD; in a key a character of private
/// use, so that no two keys become equal. `reads`: whether the value of a key of the record is read, and counts.
/// Returns nothing for a record that needs no change.
std::optional<UnicodeRecord> unicode_record(std::string_view json,
                                            const std::function<bool(std::string_view key)>& reads);

/// Throws InputError if too many bytes of a file of records were replaced. `line`: the last that was read.
void require_unicode(const std::filesystem::path& path, std::int64_t replaced, std::int64_t bytes, std::int64_t line);

}  // namespace fsdp::data
