// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tensor names that a safetensors file can contain. Readers, writers and declarations of tensors share this check.
#pragma once

#include <string_view>

namespace fsdp {

/// Throws InputError "`where`: ..." unless the name of a tensor has 1 to 512 bytes of UTF-8 without control characters,
/// and is not the key of the file's metadata.
void require_tensor_name(std::string_view name, std::string_view where);

}  // namespace fsdp
