// SPDX-License-Identifier: Apache-2.0
#include "crc32c.hpp"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>

namespace fsdp::checkpoint {
namespace {

constexpr std::uint32_t polynomial = 0x82f63b78;  // without the term x^32; the highest power is the lowest bit
constexpr std::uint32_t ones = 0xffffffff;

/// Returns a * b modulo the polynomial.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ polynomial : b >> 1;
  }
  return product;
}

/// x^(8 * 2^i) for each i: appending a zero byte multiplies by x^8.
constexpr std::array<std::uint32_t, 63> powers = [] {
  std::array<std::uint32_t, 63> made{};
  made[0] = 1u << 23;
  for (std::size_t i = 1; i < made.size(); ++i) made[i] = multiply(made[i - 1], made[i - 1]);
  return made;
}();

/// Returns the remainder `crc` extended by `bytes`, without the usual inversions.
std::uint32_t continued(std::uint32_t crc, std::span<const std::byte> bytes) {
  constexpr std::size_t most = std::size_t{1} << 30;  // ISA-L's length parameter is an int
  while (!bytes.empty()) {
    const std::size_t part = std::min(bytes.size(), most);
    // ISA-L only reads the data, but its parameter is not const.
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
    crc = ::crc32_iscsi(data, static_cast<int>(part), crc);
    bytes = bytes.subspan(part);
  }
  return crc;
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) { return continued(ones, bytes) ^ ones; }

std::uint32_t remainder_of(std::span<const std::byte> bytes) { return continued(0, bytes); }

std::uint32_t shifted(std::uint32_t remainder, std::int64_t after) {
  for (std::size_t i = 0; after != 0; ++i, after >>= 1)
    if ((after & 1) != 0) remainder = multiply(powers[i], remainder);
  return remainder;
}

std::uint32_t crc32c_of(std::uint32_t remainder, std::int64_t bytes) { return remainder ^ shifted(ones, bytes) ^ ones; }

}  // namespace fsdp::checkpoint
