// SPDX-License-Identifier: Apache-2.0
/// @file
/// Meta for the CPU.
#include <fsdp/device/cpu.hpp>

#include "meta_operations.hpp"

namespace fsdp::device {

/// Scratch of the CPU: asked of a stream that never computes.
template <>
struct MetaOf<Cpu>::Stream::Planner {
  explicit Planner(int threads) : stream(arena, threads) {}

  std::int64_t matmul(const MatmulRecord& problem, std::int64_t lda, std::int64_t ldb, std::int64_t ldc) {
    return Cpu::matmul_scratch(stream, problem, lda, ldb, ldc);
  }
  std::int64_t norm_backward(const costs::Cost& cost, std::int64_t, std::int64_t, bool) const { return cost.scratch; }
  std::int64_t rope(std::int64_t) const { return 0; }
  std::int64_t attention(const AttentionShape& shape, DType dtype, bool backward) {
    return Cpu::attention_scratch(stream, shape, dtype, backward);
  }

  Cpu::Arena arena;  ///< empty: descriptors take nothing from it
  Cpu::Stream stream;
};

FSDP_META(Cpu)

}  // namespace fsdp::device
