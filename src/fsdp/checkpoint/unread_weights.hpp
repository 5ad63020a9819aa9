// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds weights in forms that cannot be read, so that a folder with such weights is not mistaken for a folder without
/// weights.
#pragma once

#include <filesystem>

namespace fsdp::checkpoint {

/// For a folder with neither model.safetensors nor its index: throws InputError if it, or a folder at most three levels
/// in it, contains a file that can be weights (shards without an index, PyTorch's files, GGUF, a Git LFS pointer, an
/// incomplete download), or if it cannot be listed. The error reports the file and a remedy.
void require_no_unread_weights(const std::filesystem::path& folder);

}  // namespace fsdp::checkpoint
