// SPDX-License-Identifier: Apache-2.0
/// @file
/// Flags whose value is one of several names.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace fsdp::cli {

/// Throws InputError about a flag's value that is none of the names which it may have.
[[noreturn]] void refuse_unknown(std::string_view flag, std::string_view value, std::span<const std::string> names);

/// Returns where a flag's value stands among the names that it may have. Throws InputError if it is none of them.
std::size_t index_of_name(std::string_view flag, std::string_view value, std::span<const std::string> names);

}  // namespace fsdp::cli
