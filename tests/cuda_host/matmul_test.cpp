// SPDX-License-Identifier: Apache-2.0
/// Matmuls: the operands, strides, transposes and alignments that matmul.cpp passes to cuBLASLt.
#include <cstddef>
#include <cstdint>
#include <utility>

#include <device/cuda_reference.hpp>

#include "on_doubles.hpp"

namespace fsdp::testing::cuda_host {
namespace {

using device::Cuda;
using namespace device::reference;

class CudaHost_matmul : public OnDoubles {
 protected:
  struct Rank : CudaRank {
    Rank() : CudaRank(false, std::int64_t{36} << 20) {}
  };

  /// Small integers, whose products are exact.
  template <class T>
  static Matrix<T> matrix(std::int64_t rows, std::int64_t columns, std::int64_t gap, int seed) {
    Matrix<T> numbers(rows, columns, gap);
    numbers.set([=](std::int64_t i) { return (i * 7 + seed * 5) % 9 - 4; });
    return numbers;
  }

  template <class A, class C>
  static void check(std::int64_t m, std::int64_t n, std::int64_t k, int flags) {
    Rank rank;
    const bool ta = flags & 1, tb = flags & 2, accumulate = flags & 4;
    const std::int64_t gap = flags & 8 ? 3 : 0;
    // Addresses aligned to 32, 16 and 64 bytes, of which cuBLASLt is promised 16.
    const OnDevice<A> a(rank, matrix<A>(ta ? k : m, ta ? m : k, gap, 1), 32 / sizeof(A));
    const OnDevice<A> b(rank, matrix<A>(tb ? n : k, tb ? k : n, 2 * gap, 2), 16 / sizeof(A));
    const OnDevice<C> c(rank, matrix<C>(m, n, gap, 3), 64 / sizeof(C));
    Values expected = product_reference(a.values(), ta, b.values(), tb, static_cast<std::size_t>(m),
                                        static_cast<std::size_t>(n), static_cast<std::size_t>(k));
    if (accumulate) expected = plus(std::move(expected), c.values());
    device::enqueue(
        rank.stream,
        device::Matmul<A, C>{
            .a = {a, ta}, .b = {b, tb}, .c = c, .write = accumulate ? Write::accumulate : Write::overwrite});
    EXPECT_EQ(c.values(), rounded_to<C>(expected)) << m << " " << n << " " << k << " " << flags;
    EXPECT_TRUE(c.gaps_untouched());
  }

  /// A product of 3 x 3 matrices of floats.
  struct Product {
    explicit Product(CudaRank& rank)
        : a(rank, matrix<float>(3, 3, 0, 1)), b(rank, matrix<float>(3, 3, 0, 2)), c(rank, matrix<float>(3, 3, 0, 3)) {}
    void enqueue(CudaRank& rank) const {
      device::enqueue(rank.stream, device::Matmul<float>{.a = {a, false}, .b = {b, false}, .c = c});
    }
    OnDevice<float> a, b, c;
  };
};

TEST_F(CudaHost_matmul, IsCorrectForAllTransposesStridesAndWrites) {
  for (int flags = 0; flags < 16; ++flags) {
    check<float, float>(5, 7, 3, flags);
    check<bf16, bf16>(1, 17, 33, flags);
    check<bf16, float>(16, 8, 64, flags);
    check<f16, float>(3, 1, 1, flags);
  }
}

TEST_F(CudaHost_matmul, WithAnInnerSizeOfZeroWritesZeros) {
  Rank rank;
  const OnDevice<float> c(rank, matrix<float>(2, 3, 0, 1));
  device::enqueue(rank.stream, device::Matmul<float, float>{.a = Tensor<const float>(nullptr, {2, 0}),
                                                            .b = Tensor<const float>(nullptr, {0, 3}),
                                                            .c = c,
                                                            .write = Write::overwrite});
  EXPECT_EQ(c.values(), Values(6));
}

TEST_F(CudaHost_matmul, GivesCublasLtAWorkspaceAlignedTo256Bytes) {
  for (const std::int64_t odd : {1, 17, 33, 49}) {  // preceding tensors in the arena, of 1 to 4 cache lines
    Rank rank;
    const Product product(rank);
    Cuda::Arena::Frame frame(rank.arena);
    frame.allocate<float>({odd});
    product.enqueue(rank);
    rank.stream.synchronize();
  }
}

TEST_F(CudaHost_matmul, ChoosesAnAlgorithmByTheAlignmentOfEachOperandUpTo16Bytes) {
  constexpr int bytes[] = {256, 16, 8, 2};
  constexpr int algorithms[] = {1, 1, 2, 3};  // all that were chosen so far
  for (int operand = 0; operand < 3; ++operand) {
    Rank rank;
    const int before = machine().calls()["cublasLtMatmulAlgoGetHeuristic"];
    for (int i = 0; i < 4; ++i) {
      const auto at = [&](int of) { return of == operand ? bytes[i] / static_cast<int>(sizeof(bf16)) : 0; };
      const OnDevice<bf16> a(rank, matrix<bf16>(8, 8, 0, 1), at(0)), b(rank, matrix<bf16>(8, 8, 0, 2), at(1)),
          c(rank, matrix<bf16>(8, 8, 0, 3), at(2));
      device::enqueue(rank.stream, device::Matmul<bf16>{.a = {a, false}, .b = {b, false}, .c = c});
      rank.stream.synchronize();
      EXPECT_EQ(machine().calls()["cublasLtMatmulAlgoGetHeuristic"] - before, algorithms[i]) << operand << " " << i;
    }
  }
}

TEST_F(CudaHost_matmul, ThrowsIfTheHeuristicFindsNoAlgorithm) {
  Rank rank;
  const Product product(rank);
  HeuristicState::next = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_THROW(product.enqueue(rank), Error);
  HeuristicState::next = CUBLAS_STATUS_SUCCESS;
  product.enqueue(rank);
  rank.stream.synchronize();
}

}  // namespace
}  // namespace fsdp::testing::cuda_host
