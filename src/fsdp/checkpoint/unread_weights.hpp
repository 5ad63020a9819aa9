// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds weights in forms that are not read, so that a folder that holds them is not taken for one without weights.
#pragma once

#include <filesystem>

namespace fsdp::checkpoint {

/// For a folder with neither model.safetensors nor its index: throws InputError if it, or a folder at most three levels
/// in it, holds a file that can be weights (shards without an index, PyTorch's files, GGUF, a Git LFS pointer, an
/// incomplete download), or if it cannot be listed. The error names the file and says what to do.
void require_no_unread_weights(const std::filesystem::path& folder);

}  // namespace fsdp::checkpoint
