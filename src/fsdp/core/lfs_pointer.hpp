// SPDX-License-Identifier: Apache-2.0
/// @file
/// Git LFS pointers: the small text files that a clone without Git LFS contains in place of large files.
#pragma once

#include <string_view>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {

inline constexpr std::string_view lfs_pointer_start = "version https://git-lfs.github.com/spec/";

/// Throws InputError if a file with this beginning is a Git LFS pointer.
inline void require_no_lfs_pointer(const std::filesystem::path& path, std::string_view beginning) {
  require<InputError>(!beginning.starts_with(lfs_pointer_start), path.string(),
                      ": is a Git LFS pointer, a text in place of the file; fetch the file by `git lfs pull`");
}

}  // namespace fsdp
