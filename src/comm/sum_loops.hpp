// SPDX-License-Identifier: Apache-2.0
/// @file
/// The inner loops of ordered sums, compiled once for each instruction set (src/device/cpu/isa.hpp).
///
/// They only add and round, so that every set gives the same bits.
#pragma once

#include <cstdint>

#include <comm/transfer.hpp>

namespace fsdp::comm {

/// Elements summed at a time: the partial sums stay in the first-level cache.
inline constexpr std::int64_t sum_block = 4096;

/// Elements [at, at + count) of a sum; count <= sum_block. A streamed result is written past the caches.
struct SumBlock {
  const Contribution* contributions = nullptr;  ///< [ranks], in rank order
  std::int64_t ranks = 0;
  DType wire = DType::f32;
  Write write = Write::overwrite;
  bool streamed = false;
  bool direct = false;  ///< the result replaces what is no contribution: it needs no room of its own
  float* to = nullptr;
};

struct SumLoops {
  void (*sum)(const SumBlock& block, std::int64_t at, std::int64_t count);
  void (*round)(const float* from, std::int64_t count, bf16* to);
};

}  // namespace fsdp::comm
