// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention on Cuda against float64: what a module holds of it, and who computes.
#pragma once

#include <cstdlib>

#include "attention_reference.hpp"
#include "cuda_reference.hpp"

namespace fsdp::device::reference {

/// What a module holds, on the device; `gap` elements between rows, of which 8 keep rows at multiples of 16 bytes.
template <class T>
struct CudaBuffers {
  CudaBuffers(CudaRank& rank, const AttentionShape& s, std::int64_t gap)
      : columns((s.heads + 2 * s.kv_heads) * s.head_dim),
        host_qkv(Matrix<T>::random(1, s.tokens(), columns, gap, 1.5)),
        host_dqkv(s.tokens(), columns, gap),
        host_out(s.tokens(), s.heads * s.head_dim, gap),
        host_dout(Matrix<T>::random(2, s.tokens(), s.heads * s.head_dim, gap)),
        host_lse(s.sequences * s.heads, s.sequence_length),
        shape(s),
        qkv(rank, host_qkv),
        dqkv(rank, host_dqkv),
        out(rank, host_out),
        dout(rank, host_dout),
        lse(rank, host_lse) {}

  Tensor<T> part(const OnDevice<T>& matrix, int index) const { return part_of(matrix.view(), shape, index); }
  void run(CudaRank& rank) {
    enqueue_all(rank);
    back();
  }
  /// Forward and backward.
  void enqueue_all(CudaRank& rank) {
    enqueue(rank.stream, Attention<T>{.shape = shape,
                                      .q = part(qkv, 0),
                                      .k = part(qkv, 1),
                                      .v = part(qkv, 2),
                                      .out = out.view(),
                                      .lse = lse.view()});
    enqueue(rank.stream, AttentionBackward<T>{.shape = shape,
                                              .q = part(qkv, 0),
                                              .k = part(qkv, 1),
                                              .v = part(qkv, 2),
                                              .out = out.input(),
                                              .lse = lse.input(),
                                              .dout = dout.input(),
                                              .dq = part(dqkv, 0),
                                              .dk = part(dqkv, 1),
                                              .dv = part(dqkv, 2)});
  }
  /// All results, once they are there.
  void back() { out.back(), lse.back(), dqkv.back(); }
  Values values(Matrix<T>& matrix, int index) const { return values_of(part_of(matrix.view(), shape, index)); }
  Inputs inputs() { return {values(host_qkv, 0), values(host_qkv, 1), values(host_qkv, 2), host_dout.values()}; }
  Results results() {
    return {host_out.values(), host_lse.values(), values(host_dqkv, 0), values(host_dqkv, 1), values(host_dqkv, 2)};
  }

  std::int64_t columns;
  Matrix<T> host_qkv, host_dqkv, host_out, host_dout;
  Matrix<float> host_lse;
  AttentionShape shape;
  OnDevice<T> qkv, dqkv, out, dout;
  OnDevice<float> lse;
};

/// A stream whose attention is `by`, as TESSERA_CUDA_ATTENTION names it, with room for cuDNN's scratch.
struct AttentionRank {
  AttentionRank(const char* by, bool plain) : chosen(choose(by)), rank(plain, 16 << 20) {}
  static bool choose(const char* by) { return setenv("TESSERA_CUDA_ATTENTION", by, 1) == 0; }
  ~AttentionRank() { unsetenv("TESSERA_CUDA_ATTENTION"); }
  bool chosen;  ///< before the stream is made, which looks
  CudaRank rank;
};

/// Runs forward and backward `by`, and holds all results against float64.
template <class T>
void expect_reference(const AttentionShape& shape, bool plain, std::int64_t gap, const char* by = "own") {
  AttentionRank chosen(by, plain);
  CudaRank& rank = chosen.rank;
  CudaBuffers<T> buffers(rank, shape, gap);
  const Results expected = attend(shape, buffers.inputs(), Rounding::none);
  buffers.run(rank);
  const Results found = buffers.results();
  const Errors e = errors(found, expected);
  const std::string what = name(shape, 1) + (plain ? ", plain" : "") + message(", gap ", gap, ", by ", by);
  EXPECT_LT(e.out, cuda_tolerance<T>()) << what;
  EXPECT_LT(e.lse, 1e-5) << what;
  EXPECT_LT(e.dq, 2 * cuda_tolerance<T>()) << what;
  EXPECT_LT(e.dk, 2 * cuda_tolerance<T>()) << what;
  EXPECT_LT(e.dv, 2 * cuda_tolerance<T>()) << what;
  EXPECT_TRUE(buffers.host_out.gaps_untouched() && buffers.host_dqkv.gaps_untouched()) << what;
  EXPECT_EQ(rank.arena.used(), 0);
}

}  // namespace fsdp::device::reference
