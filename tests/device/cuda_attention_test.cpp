// SPDX-License-Identifier: Apache-2.0
/// Cuda's attention, on the tensor cores, plain and by cuDNN, against float64.
#include <cstdlib>

#include "attention_reference.hpp"
#include "cuda_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

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

  Tensor<T> part(const OnDevice<T>& matrix, int index) const { return cut(matrix.view(), index); }
  Tensor<T> cut(Tensor<T> view, int index) const {
    const std::int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
    return view.slice_columns(index == 0 ? 0 : q + (index - 1) * kv, q + index * kv);
  }
  void run(CudaRank& rank) {
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
    out.back(), lse.back(), dqkv.back();
  }
  Values values(Matrix<T>& matrix, int index) const {
    Values result;
    const Tensor<T> view = cut(matrix.view(), index);
    for (std::int64_t row = 0; row < view.rows(); ++row)
      for (std::int64_t column = 0; column < view.columns(); ++column)
        result.push_back(static_cast<double>(static_cast<float>(view.row(row)[column])));
    return result;
  }
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

TEST(CudaAttention, OnTensorCoresIsTheReference) {
  FSDP_NEEDS_DEVICE();
  for (const std::int64_t head_dim : {64, 128})
    for (const std::int64_t length : {1, 31, 65, 257}) {
      const AttentionShape shape{.sequences = length > 100 ? 1 : 2,
                                 .sequence_length = length,
                                 .heads = length > 100 ? 2 : 4,
                                 .kv_heads = length > 100 ? 1 : 2,
                                 .head_dim = head_dim};
      expect_reference<bf16>(shape, false, 8);
      if (length < 100) expect_reference<f16>(shape, false, 0);
    }
}

TEST(CudaAttention, TilesHoldEveryHeadSizeUpTo256) {
  FSDP_NEEDS_DEVICE();
  const std::int64_t lengths[] = {65, 33, 97, 130};  // with 16 sizes, each length meets narrow, wide and padded tiles
  for (std::int64_t head_dim = 16; head_dim <= 256; head_dim += 16) {
    const AttentionShape shape{.sequences = 1,
                               .sequence_length = lengths[head_dim / 16 % 4],
                               .heads = 3,
                               .kv_heads = head_dim % 48 == 0 ? 3 : 1,
                               .head_dim = head_dim};
    if (head_dim % 32 == 0)
      expect_reference<bf16>(shape, false, 8);
    else
      expect_reference<f16>(shape, false, 0);
  }
  for (const std::int64_t head_dim : {8, 24, 104, 136, 248}) {  // the last columns that are copied are half a step
    const AttentionShape shape{.sequences = 2, .sequence_length = 40, .heads = 2, .kv_heads = 1, .head_dim = head_dim};
    expect_reference<bf16>(shape, false, 0);
  }
}

template <class T>
Results results_of(const AttentionShape& shape, bool plain) {
  AttentionRank chosen("own", plain);
  CudaBuffers<T> buffers(chosen.rank, shape, 0);
  buffers.run(chosen.rank);
  return buffers.results();
}

/// Probabilities are rounded before they are multiplied on the tensor cores, and nowhere else.
TEST(CudaAttention, IsOnTensorCoresForMultiplesOf8UpTo256) {
  FSDP_NEEDS_DEVICE();
  for (const std::int64_t head_dim : {4, 8, 12, 16, 72, 80, 96, 100, 112, 160, 192, 224, 256, 264, 272}) {
    const AttentionShape shape{.sequences = 1, .sequence_length = 20, .heads = 2, .kv_heads = 1, .head_dim = head_dim};
    const Results fast = results_of<bf16>(shape, false), plain = results_of<bf16>(shape, true);
    const bool on_tiles = head_dim % 8 == 0 && head_dim <= 256;
    EXPECT_EQ(fast.out != plain.out, on_tiles) << head_dim;
    EXPECT_EQ(fast.dq != plain.dq, on_tiles) << head_dim;
    EXPECT_EQ(fast.dk != plain.dk, on_tiles) << head_dim;
    EXPECT_EQ(fast.dv != plain.dv, on_tiles) << head_dim;
  }
}

TEST(CudaAttention, PlainIsTheReferenceForEveryTypeAndHeadSize) {
  FSDP_NEEDS_DEVICE();
  for (const std::int64_t head_dim : {1, 40, 64, 200})
    for (const std::int64_t length : {1, 33}) {
      const AttentionShape shape{
          .sequences = 2, .sequence_length = length, .heads = 4, .kv_heads = 2, .head_dim = head_dim};
      expect_reference<float>(shape, false, 3);
      expect_reference<bf16>(shape, true, 8);
      expect_reference<f16>(shape, false, 3);  // rows at odd addresses
    }
}

TEST(CudaAttention, DocumentsAttendToThemselves) {
  FSDP_NEEDS_DEVICE();
  const std::vector<std::int64_t> many = {0, 1, 1, 40, 41, 150, 150, 151, 290, 300};
  std::vector<std::int64_t> single(601);  // more than one launch can name
  std::iota(single.begin(), single.end(), 0);
  for (const std::int64_t head_dim : {64, 128}) {
    const AttentionShape shape{
        .sequences = 2, .sequence_length = 150, .heads = 2, .kv_heads = 1, .head_dim = head_dim, .documents = many};
    expect_reference<bf16>(shape, false, 0);
  }
  const std::vector<std::int64_t> few = {0, 1, 1, 40, 41, 150};
  for (const std::int64_t head_dim : {48, 80, 176, 256}) {
    const AttentionShape shape{
        .sequences = 1, .sequence_length = 150, .heads = 2, .kv_heads = 1, .head_dim = head_dim, .documents = few};
    expect_reference<bf16>(shape, false, 0);
  }
  const AttentionShape small{
      .sequences = 2, .sequence_length = 150, .heads = 2, .kv_heads = 2, .head_dim = 8, .documents = many};
  expect_reference<float>(small, false, 0);
  const AttentionShape alone{
      .sequences = 1, .sequence_length = 600, .heads = 1, .kv_heads = 1, .head_dim = 64, .documents = single};
  expect_reference<bf16>(alone, false, 0);
}

TEST(CudaAttention, WindowsHideWhatLiesBehindThem) {
  FSDP_NEEDS_DEVICE();
  const std::vector<std::int64_t> documents = {0, 1, 40, 150, 151, 290, 300};
  const std::vector<std::int64_t> few = {0, 1, 40, 150};
  for (const std::int64_t head_dim : {32, 96, 112, 192, 256}) {
    AttentionShape shape{.sequences = 1,
                         .sequence_length = 150,
                         .heads = 2,
                         .kv_heads = 1,
                         .head_dim = head_dim,
                         .window = head_dim / 2 + 1};
    if (head_dim % 64 == 0) shape.documents = few;
    expect_reference<f16>(shape, false, 0);
  }
  for (const bool packed : {false, true})
    for (const std::int64_t window : {1, 20, 64, 100}) {
      AttentionShape shape{.sequences = 2,
                           .sequence_length = 150,
                           .heads = 2,
                           .kv_heads = 1,
                           .head_dim = window % 20 == 0 ? 64 : 128,
                           .window = window};
      if (packed) shape.documents = documents;
      expect_reference<bf16>(shape, false, 0);
      shape.head_dim = 8;
      expect_reference<float>(shape, true, 0);
    }
}

void expect_same_bits(const char* by) {
  const AttentionShape shape{.sequences = 1, .sequence_length = 200, .heads = 2, .kv_heads = 1, .head_dim = 64};
  AttentionRank chosen(by, false);
  CudaBuffers<bf16> one(chosen.rank, shape, 0), two(chosen.rank, shape, 0);
  one.run(chosen.rank), two.run(chosen.rank);
  const Results a = one.results(), b = two.results();
  EXPECT_TRUE(a.out == b.out && a.lse == b.lse && a.dq == b.dq && a.dk == b.dk && a.dv == b.dv) << by;
}

TEST(CudaAttention, TwoRunsAreEqualToTheBit) {
  FSDP_NEEDS_DEVICE();
  expect_same_bits("own");
}

#if defined(FSDP_CUDNN)  // one that is skipped here would read as if there were no device
TEST(CudaAttention, ByCudnnIsTheReference) {
  FSDP_NEEDS_DEVICE();
  for (const std::int64_t head_dim : {8, 40, 64, 128})
    for (const std::int64_t length : {2, 31, 65, 257}) {
      const AttentionShape shape{.sequences = length > 100 ? 1 : 2,
                                 .sequence_length = length,
                                 .heads = length > 100 ? 2 : 4,
                                 .kv_heads = length > 100 ? 1 : 2,
                                 .head_dim = head_dim};
      expect_reference<bf16>(shape, false, 8, "cudnn");
      if (length < 100) expect_reference<f16>(shape, false, 0, "cudnn");
    }
  expect_reference<bf16>({.sequences = 2, .sequence_length = 64, .heads = 2, .kv_heads = 2, .head_dim = 64}, false, 0,
                         "cudnn");
}

TEST(CudaAttention, ByCudnnIsEqualToTheBit) {
  FSDP_NEEDS_DEVICE();
  expect_same_bits("cudnn");
}
#endif

TEST(CudaAttention, LargeScoresStayFinite) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  const AttentionShape shape{.sequences = 1, .sequence_length = 100, .heads = 1, .kv_heads = 1, .head_dim = 64};
  CudaBuffers<bf16> buffers(rank, shape, 0);
  buffers.host_qkv.set([](std::int64_t i) { return 60 * number_at(7, i); });
  const OnDevice<bf16> qkv(rank, buffers.host_qkv);
  enqueue(rank.stream, Attention<bf16>{.shape = shape,
                                       .q = buffers.part(qkv, 0),
                                       .k = buffers.part(qkv, 1),
                                       .v = buffers.part(qkv, 2),
                                       .out = buffers.out.view(),
                                       .lse = buffers.lse.view()});
  buffers.out.back(), buffers.lse.back();
  const Results expected = attend(shape, buffers.inputs(), Rounding::none);
  EXPECT_LT(relative(buffers.host_out.values(), expected.out), 1.0 / 128);
  EXPECT_LT(relative(buffers.host_lse.values(), expected.lse), 1e-5);
}

}  // namespace
}  // namespace fsdp::device
