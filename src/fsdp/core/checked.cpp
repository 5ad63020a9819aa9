// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/checked.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>

namespace fsdp {

std::int64_t first_not_finite(std::span<const float> values) {
  constexpr std::uint32_t exponent = 0x7f80'0000;
  const auto not_finite = [](float value) { return (std::bit_cast<std::uint32_t>(value) & exponent) == exponent; };
  constexpr std::size_t block = 4096;  // values per block; the loop over a block has no branches
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const auto part = values.subspan(begin, std::min(block, values.size() - begin));
    if (std::ranges::count_if(part, not_finite) == 0) continue;
    return static_cast<std::int64_t>(begin) + (std::ranges::find_if(part, not_finite) - part.begin());
  }
  return -1;
}

}  // namespace fsdp
