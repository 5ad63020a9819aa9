// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scratch of the CPU, for Meta: asked of a stream that never computes.
#pragma once

#include <cstdint>

#include <fsdp/device/cpu.hpp>

#include "../costs.hpp"

namespace fsdp::device::cpu {

class Planner {
 public:
  explicit Planner(int threads) : stream_(arena_, threads) {}

  std::int64_t matmul(const MatmulRecord& problem, std::int64_t lda, std::int64_t ldb, std::int64_t ldc) {
    return Cpu::matmul_scratch(stream_, problem, lda, ldb, ldc);
  }
  std::int64_t norm_backward(const costs::Cost& cost, std::int64_t, std::int64_t, bool) const { return cost.scratch; }
  std::int64_t rope(std::int64_t) const { return 0; }
  std::int64_t attention(const AttentionShape& shape, DType dtype, bool backward) {
    return Cpu::attention_scratch(stream_, shape, dtype, backward);
  }

 private:
  Cpu::Arena arena_;  ///< empty: descriptors take nothing from it
  Cpu::Stream stream_;
};

}  // namespace fsdp::device::cpu
