// SPDX-License-Identifier: Apache-2.0
/// @file
/// Limits of a safetensors file: the reader rejects files beyond them, and the writer does not produce them. The limits
/// of tensor names are in ../core/tensor_name.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fsdp::checkpoint {

inline constexpr std::int64_t most_header_bytes = 25'000'000;  // limit of huggingface_hub; the format allows 100 MB
inline constexpr std::size_t most_rank = 8;                    // number of extents of a tensor

}  // namespace fsdp::checkpoint
