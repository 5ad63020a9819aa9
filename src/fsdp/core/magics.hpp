// SPDX-License-Identifier: Apache-2.0
/// @file
/// File formats that are recognised by their first bytes. To add a format: a line in the table of magics.cpp.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {

inline constexpr std::string_view lfs_pointer_start = "version https://git-lfs.github.com/spec/";

/// Throws InputError if a file with this beginning is a Git LFS pointer.
inline void require_no_lfs_pointer(const std::filesystem::path& path, std::string_view beginning) {
  require<InputError>(!beginning.starts_with(lfs_pointer_start), path.string(),
                      ": is a Git LFS pointer, a text in place of the file; fetch the file by `git lfs pull`");
}

/// The bytes at a fixed position that identify a file format.
struct Magic {
  std::string_view bytes = {};
  std::string_view name = {};    ///< description of the format, such as "compressed by gzip"
  std::string_view advice = {};  ///< what to do with such a file if it was given as data, such as "unpack it (gunzip)"
  std::size_t at = 0;            ///< position of the bytes in the file
};

/// Advice for files of several formats that were given as data.
namespace data_advice {
inline constexpr std::string_view as_jsonl = "write its rows as JSONL, such as datasets.Dataset.to_json does";
inline constexpr std::string_view as_tokens = "load it in Python, and write its tokens alone by numpy's tofile";
inline constexpr std::string_view no_data = "it is no data for a language model; leave it out";
}  // namespace data_advice

/// Returns the format that a file's first bytes identify; null if there is none.
const Magic* magic_of(std::string_view head);

/// Throws InputError if a file begins like an HTML page, which servers send in place of a missing file.
void require_no_html(const std::filesystem::path& path, std::string_view head);

}  // namespace fsdp
