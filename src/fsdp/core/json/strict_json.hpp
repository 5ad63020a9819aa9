// SPDX-License-Identifier: Apache-2.0
/// @file
/// JSON from untrusted files: all sizes are bounded, and a repeated key is an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp {

inline constexpr std::int64_t most_config_bytes = 1'000'000;  ///< largest size of a config.json in bytes

struct JsonLimits {
  std::size_t depth = 8;        ///< depth of nested objects and arrays
  std::size_t values = 100000;  ///< number of keys and array entries in total
  std::size_t array = 100000;   ///< number of entries of one array
  std::size_t text = 65536;     ///< bytes of one string or key
  bool keep_digits = false;     ///< an integer of more than 64 bits becomes a binary value with its digits
};

/// Throws InputError "`source`: ..." unless the text is one well-formed value within the limits.
nlohmann::json parse_strict(std::string_view text, const std::string& source, const JsonLimits& limits = {});
/// The same, with keys in the order of the text.
nlohmann::ordered_json parse_strict_ordered(std::string_view text, const std::string& source,
                                            const JsonLimits& limits = {});

/// Reads a whole regular file of at most `most_bytes` bytes. Throws InputError.
std::string read_small_file(const std::filesystem::path& path, std::int64_t most_bytes);

}  // namespace fsdp
