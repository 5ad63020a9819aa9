// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text that is not UTF-8: refused where much of a file is, counted where little is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace fsdp::data {

inline constexpr std::string_view utf8_mark = "\xEF\xBB\xBF";  ///< byte order mark of UTF-8, which is no text

/// Throws InputError if a text begins with the byte order mark of UTF-16 or UTF-32. `head`: its first bytes.
void require_no_wide_encoding(std::span<const std::uint8_t> head, const std::filesystem::path& path);

/// Throws InputError for a file that is text by its name and has a NUL. `head`: its first bytes, with the NUL.
[[noreturn]] void refuse_nul(std::span<const std::uint8_t> head, const std::filesystem::path& path);

/// Returns how many bytes of a text are not UTF-8; each becomes, with its neighbours, U+FFFD.
std::int64_t invalid_bytes(std::string_view text);

/// Throws InputError, with the place of the first one, if more than 1 % of a file's bytes are not UTF-8. `invalid`: how
/// many are not.
void require_utf8(const std::filesystem::path& path, std::int64_t invalid, std::int64_t bytes);

/// The same; reads all of a file only if its first bytes are suspicious.
void require_utf8(const std::filesystem::path& path);

}  // namespace fsdp::data
