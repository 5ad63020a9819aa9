// SPDX-License-Identifier: Apache-2.0
/// Products: what matmul.cpp tells cuBLASLt. Names of tensors, strides, transpositions, alignments.
#include <vector>

#include "on_doubles.hpp"

namespace fsdp::testing::cuda_host {
namespace {

using device::Cuda;
using End = Cuda::Arena::End;

class CudaHost_matmul : public OnDoubles {
 protected:
  struct Rank {
    device::Ledger ledger;
    Cuda::Arena arena{ledger, std::int64_t{36} << 20};
    Cuda::Stream stream{arena};
  };

  /// A matrix of whole numbers in the arena, with a gap behind each row.
  template <class T>
  static Tensor<T> matrix(Rank& rank, std::int64_t rows, std::int64_t columns, std::int64_t gap, int seed) {
    const auto whole = rank.arena.allocate<T>(End::low, {rows, columns + gap});
    for (std::int64_t i = 0; i < whole.numel(); ++i)
      whole.data()[i] = T(static_cast<float>((i * 7 + seed * 5) % 9 - 4));
    return whole.slice_columns(0, columns);
  }

  template <class A, class C>
  static void check(std::int64_t m, std::int64_t n, std::int64_t k, int flags) {
    Rank rank;
    const bool ta = flags & 1, tb = flags & 2, accumulate = flags & 4;
    const std::int64_t gap = flags & 8 ? 3 : 0;
    const auto a = matrix<A>(rank, ta ? k : m, ta ? m : k, gap, 1);
    const auto b = matrix<A>(rank, tb ? n : k, tb ? k : n, 2 * gap, 2);
    const auto c = matrix<C>(rank, m, n, gap, 3);
    std::vector<float> expected;
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        float sum = accumulate ? static_cast<float>(c.row(i)[j]) : 0;
        for (std::int64_t l = 0; l < k; ++l)
          sum +=
              static_cast<float>(ta ? a.row(l)[i] : a.row(i)[l]) * static_cast<float>(tb ? b.row(j)[l] : b.row(l)[j]);
        expected.push_back(sum);
      }
    device::enqueue(
        rank.stream,
        device::Matmul<A, C>{
            .a = {a, ta}, .b = {b, tb}, .c = c, .write = accumulate ? Write::accumulate : Write::overwrite});
    rank.stream.synchronize();
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        ASSERT_EQ(static_cast<float>(c.row(i)[j]), static_cast<float>(C(expected[static_cast<std::size_t>(i * n + j)])))
            << m << " " << n << " " << k << " " << flags;
  }
};

TEST_F(CudaHost_matmul, IsTheProductForEveryTranspositionStrideAndWrite) {
  for (int flags = 0; flags < 16; ++flags) {
    check<float, float>(5, 7, 3, flags);
    check<bf16, bf16>(1, 17, 33, flags);
    check<bf16, float>(16, 8, 64, flags);
    check<f16, float>(3, 1, 1, flags);
  }
}

TEST_F(CudaHost_matmul, ThatHasNoProductsIsZero) {
  Rank rank;
  const auto c = matrix<float>(rank, 2, 3, 0, 1);
  device::enqueue(rank.stream, device::Matmul<float, float>{.a = Tensor<const float>(nullptr, {2, 0}),
                                                            .b = Tensor<const float>(nullptr, {0, 3}),
                                                            .c = c,
                                                            .write = Write::overwrite});
  rank.stream.synchronize();
  EXPECT_EQ(std::vector<float>(c.data(), c.data() + 6), std::vector<float>(6));
}

TEST_F(CudaHost_matmul, GivesTheLibraryAWorkspaceAtAMultipleOf256Bytes) {
  for (const std::int64_t odd : {1, 17, 33, 49}) {  // tensors before it in the arena, of 1 to 4 cache lines
    Rank rank;
    const auto a = matrix<float>(rank, 3, 3, 0, 1), b = matrix<float>(rank, 3, 3, 0, 2),
               c = matrix<float>(rank, 3, 3, 0, 3);
    Cuda::Arena::Frame frame(rank.arena);
    frame.allocate<float>({odd});
    device::enqueue(rank.stream, device::Matmul<float>{.a = a, .b = b, .c = c});
    rank.stream.synchronize();
  }
}

TEST_F(CudaHost_matmul, ThatTheHeuristicFindsInVainIsAnError) {
  Rank rank;
  const auto a = matrix<float>(rank, 3, 3, 0, 1), b = matrix<float>(rank, 3, 3, 0, 2),
             c = matrix<float>(rank, 3, 3, 0, 3);
  HeuristicState::next = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_THROW(device::enqueue(rank.stream, device::Matmul<float>{.a = a, .b = b, .c = c}), Error);
  HeuristicState::next = CUBLAS_STATUS_SUCCESS;
  device::enqueue(rank.stream, device::Matmul<float>{.a = a, .b = b, .c = c});
  rank.stream.synchronize();
}

}  // namespace
}  // namespace fsdp::testing::cuda_host
