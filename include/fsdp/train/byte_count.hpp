// SPDX-License-Identifier: Apache-2.0
/// @file
/// Numbers of bytes as flags give them: "4096", "512MiB", "2GiB".
#pragma once

#include <cstdint>
#include <string_view>

namespace fsdp::train {

/// The bytes; 0 where the text is anything else, not positive, or more than an int64 holds.
std::int64_t bytes_of(std::string_view text);

/// The same; throws InputError, which names the flag.
std::int64_t parse_bytes(std::string_view flag, std::string_view text);

}  // namespace fsdp::train
