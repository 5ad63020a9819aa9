// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/checked.hpp>

#include <algorithm>
#include <array>
#include <charconv>

namespace fsdp {

std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  require<InputError>(!__builtin_add_overflow(a, b, &sum), "size overflow: ", a, " + ", b);
  return sum;
}

std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  require<InputError>(!__builtin_mul_overflow(a, b, &product), "size overflow: ", a, " x ", b);
  return product;
}

std::string exact_text(double number) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

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
