// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses numbers of bytes in flags: "4096", "512MiB", "2GiB".
#pragma once

#include <cstdint>
#include <string_view>

namespace fsdp::train {

/// Returns the number of bytes; 0 if the text is not such a number, is not positive, or does not fit into an int64.
std::int64_t bytes_of(std::string_view text);

/// The same, but throws an InputError that identifies the flag instead of returning 0.
std::int64_t parse_bytes(std::string_view flag, std::string_view text);

}  // namespace fsdp::train
