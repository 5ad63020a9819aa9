// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which names of tensors a safetensors file can hold: readers, writers and whoever declares a tensor make the same
/// check.
#pragma once

#include <string_view>

namespace fsdp {

/// Throws InputError "`where`: ..." unless a tensor's name has 1 to 512 bytes of UTF-8 and no control characters, and
/// is not the key of the file's metadata.
void require_tensor_name(std::string_view name, std::string_view where);

}  // namespace fsdp
