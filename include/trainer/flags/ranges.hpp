// SPDX-License-Identifier: Apache-2.0
/// @file
/// The largest numbers that flags accept. Larger ones are typing errors, or would overflow later.
#pragma once

#include <cstdint>
#include <limits>

#include <tessera/fsdp/core/range.hpp>

namespace fsdp::train {

inline constexpr std::int64_t most_ranks = 65'536;  ///< largest number of ranks that --dry-run can plan
inline constexpr std::int64_t most_steps = 1'000'000'000'000;
inline constexpr std::int64_t most_sequences = 1 << 20;  ///< largest number of sequences in a step
inline constexpr std::int64_t most_tokens =
    std::numeric_limits<std::int32_t>::max();  ///< largest number of tokens in a micro-batch
inline constexpr std::int64_t most_blocks = 1 << 20;
inline constexpr std::int64_t most_elements = std::int64_t{1} << 50;

/// The range [least, most] of whole numbers.
constexpr Range<std::int64_t> counts_up_to(std::int64_t most, std::int64_t least = 1) {
  return {.least = least, .most = most};
}

}  // namespace fsdp::train
