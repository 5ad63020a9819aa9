// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text that is not UTF-8: a file with much of it is refused; a little is counted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace fsdp::data {

/// Byte order mark of UTF-8, which is not part of the text.
inline constexpr std::string_view utf8_mark = "\xEF\xBB\xBF";

/// Throws InputError if a text begins with the byte order mark of UTF-16 or UTF-32. `head`: its first bytes.
void require_no_wide_encoding(std::string_view head, const std::filesystem::path& path);

/// Throws InputError for a file whose name is that of a text and whose first bytes contain a NUL.
[[noreturn]] void refuse_nul(const std::filesystem::path& path);

/// Returns the number of bytes of a text that are not UTF-8; each invalid sequence becomes U+FFFD.
std::int64_t invalid_bytes(std::string_view text);

/// Throws InputError if more than 1 % of a file's bytes are not UTF-8. `invalid`: their number.
void require_utf8(const std::filesystem::path& path, std::int64_t invalid, std::int64_t bytes);

/// The same; reads all of a file only if its first bytes are suspicious.
void require_utf8(const std::filesystem::path& path);

/// A JSON record whose strings are Unicode.
struct UnicodeRecord {
  std::string json = {};
  std::int64_t replaced = 0;  ///< number of bytes, in values that are read, that became U+FFFD; an escape counts as one
};

/// Replaces non-Unicode parts in the strings of a record: bytes that are not UTF-8, and escapes of half a character
/// (\udcb2 alone), which Python writes for such bytes. In a value each becomes U+FFFD; in a key a character of private
/// use, so that no two keys become equal. `reads`: whether a key's value is read, so that its replacements count.
/// Returns nothing if there are none.
std::optional<UnicodeRecord> unicode_record(std::string_view json,
                                            const std::function<bool(std::string_view key)>& reads);

/// Throws InputError if too many bytes of a file of records were replaced. `line`: the last line that was read.
void require_unicode(const std::filesystem::path& path, std::int64_t replaced, std::int64_t bytes, std::int64_t line);

}  // namespace fsdp::data
