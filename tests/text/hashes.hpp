// SPDX-License-Identifier: Apache-2.0
/// @file
/// The 32-bit FNV-1a hash that is used by the scripts that make test vectors.
#pragma once

#include <cstdint>
#include <string_view>

namespace fsdp::test {

inline std::uint32_t hash_of(std::string_view bytes) {
  std::uint32_t hash = 0x811C9DC5;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x01000193;
  return hash;
}

}  // namespace fsdp::test
