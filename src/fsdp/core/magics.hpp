// SPDX-License-Identifier: Apache-2.0
/// @file
/// Formats that are known by a file's first bytes.
///
/// To add one: a line in the table of magics.cpp.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace fsdp {

/// The bytes that files of a format have at one place.
struct Magic {
  std::string_view bytes = {};
  std::string_view name = {};    ///< "compressed by gzip"
  std::string_view advice = {};  ///< what to do with such a file that was given as data: "unpack it (gunzip)"
  std::size_t at = 0;            ///< where the bytes stand
};

/// What to do with files of several formats that were given as data.
namespace data_advice {
inline constexpr std::string_view as_jsonl = "write its rows as JSONL, such as datasets.Dataset.to_json does";
inline constexpr std::string_view as_tokens = "load it in Python, and write its tokens alone by numpy's tofile";
inline constexpr std::string_view no_data = "it is no data for a language model; leave it out";
}  // namespace data_advice

/// Returns the format that a file's first bytes name; null if they name none.
const Magic* magic_of(std::string_view head);

/// Throws InputError if a file begins as a page of HTML, which servers send in place of a file.
void require_no_html(const std::filesystem::path& path, std::string_view head);

}  // namespace fsdp
