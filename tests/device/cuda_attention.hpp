// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention on Cuda compared with float64, by a selectable implementation.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "attention_reference.hpp"
#include "cuda_reference.hpp"

namespace fsdp::device::reference {

template <class T>
using CudaBuffers = Buffers<T, CudaRank>;

/// A stream whose attention implementation is `by`, a value of TESSERA_CUDA_ATTENTION, with enough scratch for cuDNN.
struct AttentionRank {
  AttentionRank(const char* by, bool plain) : chosen(choose(by)), rank(plain, 16 << 20) {}
  static bool choose(const char* by) { return setenv("TESSERA_CUDA_ATTENTION", by, 1) == 0; }
  ~AttentionRank() { unsetenv("TESSERA_CUDA_ATTENTION"); }
  bool chosen;  ///< set before the stream is created, which reads the variable
  CudaRank rank;
};

/// Runs forward and backward with implementation `by`, and compares all results with float64.
template <class T>
void expect_reference(const AttentionShape& shape, bool plain, std::int64_t gap, const char* by = "own") {
  AttentionRank chosen(by, plain);
  CudaRank& rank = chosen.rank;
  CudaBuffers<T> buffers(rank, shape, gap);
  const Results expected = attend(shape, buffers.inputs(), Rounding::none);
  buffers.run(rank);
  const Errors e = errors(buffers.results(), expected);
  const std::string what = name(shape, 1) + (plain ? ", plain" : "") + message(", gap ", gap, ", by ", by);
  EXPECT_LT(e.out, CudaRank::tolerance<T>) << what;
  EXPECT_LT(e.lse, 1e-5) << what;
  for (const double error : {e.dq, e.dk, e.dv}) EXPECT_LT(error, 2 * CudaRank::tolerance<T>) << what;
  EXPECT_TRUE(buffers.gaps_untouched()) << what;
  EXPECT_EQ(rank.arena.used(), 0);
}

}  // namespace fsdp::device::reference
