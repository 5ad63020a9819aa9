// SPDX-License-Identifier: Apache-2.0
/// @file
/// The inner loops of ordered sums, compiled once for each instruction set (src/fsdp/device/cpu/isa.hpp).
///
/// The loops only add and round, so results are bit-identical with every instruction set.
#pragma once

#include <cstdint>

#include <tessera/comm/transfer.hpp>

namespace fsdp::comm {

/// Number of elements summed at a time, so that partial sums stay in the first-level cache.
inline constexpr std::int64_t sum_block = 4096;

/// The arguments of a sum; one call of a loop computes elements [at, at + count), count <= sum_block.
struct SumBlock {
  const Contribution* contributions = nullptr;  ///< [ranks], in rank order
  std::int64_t ranks = 0;
  DType wire = DType::f32;
  Write write = Write::overwrite;
  bool streamed = false;  ///< whether the result is written past the caches
  bool direct = false;    ///< whether to sum in `to` itself, which aliases no contribution; always if it accumulates
  float* to = nullptr;
};

struct SumLoops {
  void (*sum)(const SumBlock& block, std::int64_t at, std::int64_t count);
  void (*round)(const float* from, std::int64_t count, bf16* to);
};

}  // namespace fsdp::comm
