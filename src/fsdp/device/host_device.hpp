// SPDX-License-Identifier: Apache-2.0
/// @file
/// Functions that compile for the host and for GPUs: their macro, and the selection of the elements that dropout
/// drops, a hash of their position, which is the same on every device.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define FSDP_BOTH __host__ __device__ __forceinline__  ///< compiles a function for host and device
#else
#define FSDP_BOTH [[gnu::always_inline]] inline  // each instruction set needs its own copy
#endif

namespace fsdp::device {

/// Returns the threshold for a drop rate: an element is dropped if its hash word is below the threshold.
inline std::uint32_t dropped_below(double rate) { return static_cast<std::uint32_t>(rate * 4294967296.0); }

/// Returns the hash key of a row, by SplitMix64's output function (Steele, Lea, Flood 2014).
FSDP_BOTH std::uint32_t dropout_row(std::uint64_t key, std::int64_t row) {
  std::uint64_t word = key + static_cast<std::uint64_t>(row) * 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return static_cast<std::uint32_t>((word ^ (word >> 31)) >> 32);
}

/// Returns the hash word of an element, or of a vector of elements, from its row's key and its column. The hash
/// function has little bias in any bit (constants of Wellons' search for 32-bit hashes, "lowbias32").
template <class Words>
FSDP_BOTH Words dropout_word(Words row, Words column) {
  Words word = row + column * 0x9e3779b9u;
  word = (word ^ (word >> 16)) * 0x7feb352du;
  word = (word ^ (word >> 15)) * 0x846ca68bu;
  return word ^ (word >> 16);
}

}  // namespace fsdp::device
