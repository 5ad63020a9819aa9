// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/byte_count.hpp>

#include <limits>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/numbers.hpp"

namespace fsdp::train {

std::int64_t bytes_of(std::string_view text) {
  const std::int64_t bytes = number_of_bytes(text).value_or(0);
  return bytes < std::numeric_limits<std::int64_t>::max() ? bytes : 0;
}

std::int64_t parse_bytes(std::string_view flag, std::string_view text) {
  const std::int64_t bytes = bytes_of(text);
  require<InputError>(bytes > 0, "--", flag, " '", shortened(text),
                      "' is not a number of bytes; give one such as 8589934592 or 8GiB");
  return bytes;
}

}  // namespace fsdp::train
