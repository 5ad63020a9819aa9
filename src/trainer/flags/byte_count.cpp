// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/byte_count.hpp>

#include <array>
#include <limits>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/numbers.hpp"

namespace fsdp::train {

std::int64_t bytes_of(std::string_view text) {
  static constexpr std::array<std::string_view, 4> units = {"KiB", "MiB", "GiB", "TiB"};
  std::int64_t scale = 1;
  for (std::size_t i = 0; i < units.size(); ++i)
    if (text.ends_with(units[i])) {
      text.remove_suffix(units[i].size());
      scale = std::int64_t{1} << (10 * (i + 1));
      break;
    }
  const std::int64_t number = parsed<std::int64_t>(text).value_or(0);
  if (number < 1) return 0;
  return number <= std::numeric_limits<std::int64_t>::max() / scale ? number * scale : 0;
}

std::int64_t parse_bytes(std::string_view flag, std::string_view text) {
  const std::int64_t bytes = bytes_of(text);
  require<InputError>(bytes > 0, "--", flag, " '", shortened(text),
                      "' is not a number of bytes; give one such as 8589934592 or 8GiB");
  return bytes;
}

}  // namespace fsdp::train
