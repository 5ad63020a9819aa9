// SPDX-License-Identifier: Apache-2.0
/// Cuda's memory, queues, matmuls and operations on activations, compared with float64, in float, bf16 and f16.
#include "activations.hpp"
#include "cuda_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

static_assert(check_device<Cuda>() && Captures<Cuda> && computes_in<Cuda, f16>);

TEST(Cuda, AllocatesZeroedMemoryAndReportsItsSize) {
  FSDP_NEEDS_DEVICE();
  Ledger ledger;
  Cuda::Queue queue("test");
  const Block<Cuda> block(ledger, MemoryKind::weights, 1 << 20);
  std::vector<std::byte> found(1 << 20, std::byte{1});
  Cuda::move(queue, block.data(), found.data(), block.bytes());
  queue.synchronize();
  EXPECT_EQ(found, std::vector<std::byte>(1 << 20));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 256, 0u);
  EXPECT_THROW(Cuda::allocate(std::int64_t{1} << 50), MemoryError);
}

TEST(Cuda, QueuesAreOrderedByEvents) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  Cuda::Queue other("other");
  const auto a = Matrix<float>::random(1, 1, 1 << 20);
  const OnDevice<float> first(rank, a), second(rank, {1, 1 << 20}), third(rank, {1, 1 << 20});
  EXPECT_TRUE(Cuda::Event().happened());
  const CudaRange range("add five times, then copy");
  for (int i = 0; i < 5; ++i) enqueue(rank.stream, Add<float>{.x = first, .y = second});
  enqueue(rank.stream, Copy<float>{.x = first, .y = second});
  const Cuda::Event copied = rank.stream.record();
  other.wait(copied);
  Cuda::move(other, reinterpret_cast<const std::byte*>(second.view().data()),
             reinterpret_cast<std::byte*>(third.view().data()), 4 << 20);
  const Cuda::Event moved = other.record(), same = moved;
  other.synchronize();
  EXPECT_TRUE(copied.happened() && moved.happened() && same.happened());
  EXPECT_EQ(third.values(), a.values());
}

TEST(Cuda, ReplaysCapturedGraphs) {
  FSDP_NEEDS_DEVICE();
#if !defined(NDEBUG)
  GTEST_SKIP() << "debug builds keep no graphs";
#endif
  CudaRank rank;
  Cuda::Queue other("other");
  const auto a = Matrix<float>::random(1, 1, 1 << 20);
  const OnDevice<float> first(rank, a), sum(rank, {1, 1 << 20}), copied(rank, {1, 1 << 20});
  enqueue(rank.stream, Fill<float>{.y = sum, .value = 0.0f});
  enqueue(rank.stream, Fill<float>{.y = copied, .value = -1.0f});
  const Cuda::Graph graph = Cuda::capture(rank.stream, [&] {
    enqueue(rank.stream, Add<float>{.x = first, .y = sum});
    other.wait(rank.stream.record());
    Cuda::move(other, reinterpret_cast<const std::byte*>(sum.view().data()),
               reinterpret_cast<std::byte*>(copied.view().data()), 4 << 20);
    rank.stream.wait(other.record());
  });
  EXPECT_EQ(copied.values(), Values(1 << 20, -1.0)) << "what is captured is not done";
  for (int i = 0; i < 3; ++i) graph.launch(rank.stream);
  Values thrice = a.values();
  for (double& value : thrice) value = 3.0f * static_cast<float>(value);  // once + once is exact
  EXPECT_EQ(copied.values(), thrice);
}

TEST(Cuda, MatmulMatchesTheReferenceForAllTransposesAndStrides) {
  FSDP_NEEDS_DEVICE();
  const auto check = []<class A, class C>(A, C) {
    CudaRank rank(false, 40 << 20);  // cuBLASLt's workspace
    expect_products<A, C>(rank, {{1, 1, 1}, {7, 15, 1}, {15, 257, 7}, {64, 96, 257}, {128, 64, 64}});
  };
  check(float(), float());
  check(bf16(), bf16());
  check(bf16(), float());
  check(f16(), f16());
  check(f16(), float());
}

TEST(Cuda, RmsNormOfRowsAndHeadsMatchesTheReference) {
  FSDP_NEEDS_DEVICE();
  for_types([]<class T>(T) {
    expect_norms<T, CudaRank>();
    for (const bool plain : {false, true})  // more rows than parts
      for (const Write write : {Write::overwrite, Write::accumulate})
        expect_norm<T, CudaRank>({.rows = 300, .columns = 128, .plain = plain}, 2, false, write);
  });
}

TEST(Cuda, RmsNormWithAWeightInFloatMatchesTheReference) {
  FSDP_NEEDS_DEVICE();
  for (const Case& c : CudaRank::cases())
    for (const std::int64_t heads : {1, 3}) {
      if (c.rows * c.columns > 10000 && heads > 1) continue;
      expect_norm<bf16, CudaRank, float>(c, heads, false, Write::overwrite);
      if (c.rows < 10) expect_norm<f16, CudaRank, float>(c, heads, true, Write::accumulate);
    }
}

/// Covers, in float and in 16 bits: rows that are too long for registers and need more shared memory than a launch gets
/// by default; rows that use the most threads of a block; and more rows than the blocks of backward process at once,
/// with one or two teams of threads in each block.
TEST(Cuda, RmsNormOfLongRowsAndOfManyRowsMatchesThePlainKernel) {
  FSDP_NEEDS_DEVICE();
  const auto compare = []<class T, class W>(T, W, std::int64_t rows, std::int64_t columns) {
    Values found[2];
    for (const bool plain : {false, true}) {
      CudaRank rank(plain, 4 << 20);
      const OnDevice<T> x(rank, Matrix<T>::random(1, rows, columns, 0, 3)), y(rank, {rows, columns});
      const OnDevice<W> w(rank, Matrix<W>::random_numbers(2, columns));
      const OnDevice<T> dx(rank, {rows, columns}), dy(rank, Matrix<T>::random(3, rows, columns));
      const OnDevice<float> rstd(rank, Matrix<float>::numbers(rows)), dw(rank, Matrix<float>::numbers(columns));
      enqueue(rank.stream, RmsNorm<T, W>{.x = x, .weight = w, .y = y, .rstd = rstd});
      enqueue(rank.stream, RmsNormBackward<T, W>{.x = x, .weight = w, .rstd = rstd, .dy = dy, .dx = dx, .dw = dw});
      for (const Values& part : {y.values(), dx.values(), dw.values()})
        found[plain].insert(found[plain].end(), part.begin(), part.end());
    }
    EXPECT_LT(difference(found[0], found[1]), 2 * CudaRank::tolerance<T>) << rows << " x " << columns;
  };
  for (const auto& [rows, columns] : {std::pair{3, 12288}, {3, 8192}, {257, 2056}, {513, 520}}) {
    for_types([&, r = rows, c = columns](auto type) { compare(type, type, r, c); });
    compare(bf16(), float(), rows, columns);
  }
}

TEST(Cuda, RmsNormBackwardWithoutAWeightGradientWritesOnlyDx) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  const OnDevice<float> x(rank, Matrix<float>::random(1, 3, 40)), w(rank, Matrix<float>::random_numbers(2, 40));
  const auto seed = Matrix<float>::random(3, 3, 40);
  const OnDevice<float> a(rank, seed), b(rank, seed), y(rank, {3, 40});
  const OnDevice<float> rstd(rank, Matrix<float>::numbers(3)), dw(rank, Matrix<float>::numbers(40));
  enqueue(rank.stream, RmsNorm<float>{.x = x, .weight = w, .eps = norm_eps, .y = y, .rstd = rstd});
  const auto backward = [&](Tensor<float> dy, Tensor<float> to) {
    enqueue(rank.stream, RmsNormBackward<float>{.x = x, .weight = w, .rstd = rstd, .dy = dy, .dx = dy, .dw = to});
  };
  backward(a, Tensor<float>(nullptr, {40}));
  backward(b, dw);
  EXPECT_EQ(a.values(), b.values());
}

TEST(Cuda, RmsNormBackwardOfNoRowsClearsOrKeepsTheWeightGradient) {
  FSDP_NEEDS_DEVICE();
  for (const bool plain : {false, true}) {
    CudaRank rank(plain);
    const OnDevice<float> w(rank, Matrix<float>::random_numbers(1, 40)), dw(rank, Matrix<float>::random_numbers(2, 40));
    const Tensor<float> none(w.view().data(), {0, 40}), no_rstd(none.data(), {0});
    const auto backward = [&](Write write) {
      enqueue(rank.stream,
              RmsNormBackward<float>{
                  .x = none, .weight = w, .rstd = no_rstd, .dy = none, .dx = none, .dw = dw, .dw_write = write});
      return dw.values();
    };
    const Values before = dw.values();
    EXPECT_EQ(backward(Write::accumulate), before);
    EXPECT_EQ(backward(Write::overwrite), Values(40));
  }
}

TEST(Cuda, RopeRotatesHalvesWithinDocumentsForwardAndBackward) {
  FSDP_NEEDS_DEVICE();
  const std::vector<std::int64_t> lengths = {0, 5, 5, 12, 13, 24};
  for_types([&]<class T>(T) {
    expect_rope<T, CudaRank>({});
    expect_rope<T, CudaRank>(lengths);
  });
}

TEST(Cuda, SwiGluMatchesTheReferenceForwardAndBackward) {
  FSDP_NEEDS_DEVICE();
  for_types([]<class T>(T) { expect_swiglu<T, CudaRank>(); });
}

TEST(Cuda, AddCopyAndFillWriteEveryElementAndNoPadding) {
  FSDP_NEEDS_DEVICE();
  for_types([]<class T>(T) { expect_add_copy_and_fill<T, CudaRank>(); });
}

TEST(Cuda, AddsABiasToEveryRowAndItsGradientSumsTheRows) {
  FSDP_NEEDS_DEVICE();
  for_types([]<class T>(T) { expect_bias<T, CudaRank>(); });
}

}  // namespace
}  // namespace fsdp::device
