// SPDX-License-Identifier: Apache-2.0
/// Cuda's attention on tensor cores, by plain kernels and by cuDNN, compared with float64.
#include <numeric>

#include "cuda_attention.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

/// Compares bf16, and f16 for short sequences, with the reference.
void expect_half_precision(const std::vector<std::int64_t>& head_dims, std::int64_t length, const char* by) {
  for (const std::int64_t head_dim : head_dims) {
    const AttentionShape shape{.sequences = length > 100 ? 1 : 2,
                               .sequence_length = length,
                               .heads = length > 100 ? 2 : 4,
                               .kv_heads = length > 100 ? 1 : 2,
                               .head_dim = head_dim};
    expect_reference<bf16>(shape, false, 8, by);
    if (length < 100) expect_reference<f16>(shape, false, 0, by);
  }
}

TEST(CudaAttention, OnTensorCoresMatchesTheReference) {
  FSDP_NEEDS_DEVICE();
  for (const std::int64_t length : {1, 31, 65, 257}) expect_half_precision({64, 128}, length, "own");
}

TEST(CudaAttention, TilesSupportEveryHeadSizeUpTo256) {
  FSDP_NEEDS_DEVICE();
  const std::int64_t lengths[] = {
      65, 33, 97, 130};  // with 16 head sizes, each length is combined with narrow, wide and padded tiles
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
  for (const std::int64_t head_dim : {8, 24, 104, 136, 248}) {  // the last copy of a row is half as wide
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

/// Only the tensor core kernels round the probabilities before the product, so their results differ from the plain
/// ones.
TEST(CudaAttention, UsesTensorCoresForHeadSizesThatAreMultiplesOf8UpTo256) {
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

TEST(CudaAttention, PlainKernelsMatchTheReferenceForEveryTypeAndHeadSize) {
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

TEST(CudaAttention, DocumentsAttendOnlyToThemselves) {
  FSDP_NEEDS_DEVICE();
  const std::vector<std::int64_t> many = {0, 1, 1, 40, 41, 150, 150, 151, 290, 300};
  std::vector<std::int64_t> single(601);  // more documents than fit in the parameters of one launch
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

TEST(CudaAttention, WindowsMaskOlderKeys) {
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
      AttentionShape shape{.sequences = packed ? 2 : 1,
                           .sequence_length = 150,
                           .heads = 2,
                           .kv_heads = 1,
                           .head_dim = window % 20 == 0 ? 64 : 128,
                           .window = window};
      if (packed) shape.documents = documents;
      if (packed == (window < 64)) expect_reference<bf16>(shape, false, 0);  // two windows packed, two not
      shape.head_dim = 8;
      expect_reference<float>(shape, true, 0);
    }
}

void expect_same_bits(const char* by) {
  SCOPED_TRACE(by);
  AttentionRank chosen(by, false);
  expect_repeated<bf16>(chosen.rank,
                        {.sequences = 1, .sequence_length = 200, .heads = 2, .kv_heads = 1, .head_dim = 64}, {});
}

TEST(CudaAttention, TwoRunsAreBitIdentical) {
  FSDP_NEEDS_DEVICE();
  expect_same_bits("own");
}

#if defined(FSDP_CUDNN)  // a skipped test would look as if no device were present
TEST(CudaAttention, MatchesTheReferenceByCudnn) {
  FSDP_NEEDS_DEVICE();
  for (const std::int64_t length : {2, 31, 65, 257}) expect_half_precision({8, 40, 64, 128}, length, "cudnn");
  expect_reference<bf16>({.sequences = 2, .sequence_length = 64, .heads = 2, .kv_heads = 2, .head_dim = 64}, false, 0,
                         "cudnn");
}

TEST(CudaAttention, IsBitIdenticalByCudnn) {
  FSDP_NEEDS_DEVICE();
  expect_same_bits("cudnn");
}
#endif

TEST(CudaAttention, LargeScoresStayFinite) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  const AttentionShape shape{.sequences = 1, .sequence_length = 100, .heads = 1, .kv_heads = 1, .head_dim = 64};
  CudaBuffers<bf16> buffers(rank, shape, 0);
  const OnDevice<bf16> large(rank, Matrix<bf16>::random(7, 100, buffers.columns, 0, 60));
  enqueue(rank.stream, Copy<bf16>{.x = large, .y = buffers.qkv});
  const Results expected = attend(shape, buffers.inputs(), Rounding::none);
  buffers.forward(rank);
  EXPECT_LT(relative(buffers.out.values(), expected.out), 1.0 / 128);
  EXPECT_LT(relative(buffers.lse.values(), expected.lse), 1e-5);
}

}  // namespace
}  // namespace fsdp::device
