// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

template <class A, class C>
struct Pair {
  using Operands = A;
  using Result = C;
};
template <class P>
class MatmulOf : public ::testing::Test {};
using Pairs = ::testing::Types<Pair<float, float>, Pair<bf16, bf16>, Pair<bf16, float>>;
TYPED_TEST_SUITE(MatmulOf, Pairs);

struct Sizes {
  std::int64_t m, n, k;
};

/// Error of one sum of k products in float and one rounding, relative to the largest entry.
template <class A, class C>
constexpr double bound() {
  return std::is_same_v<C, bf16> ? 1.0 / 256 : 2e-6;
}

TYPED_TEST(MatmulOf, IsTheReferenceForEveryTranspositionStrideAndWrite) {
  using A = typename TypeParam::Operands;
  using C = typename TypeParam::Result;
  for (const int threads : team_sizes()) {
    Rank rank(threads, 16 << 20);
    for (const Sizes s :
         {Sizes{1, 1, 1}, {1, 7, 3}, {3, 1, 15}, {7, 15, 1}, {15, 257, 7}, {257, 3, 64}, {64, 96, 257}, {4, 33, 1031}})
      for (int flags = 0; flags < 16; ++flags) {
        const bool ta = flags & 1, tb = flags & 2, accumulate = flags & 4;
        const std::int64_t gap = flags & 8 ? 9 : 0;
        const auto a = Matrix<A>::random(1, ta ? s.k : s.m, ta ? s.m : s.k, gap);
        const auto b = Matrix<A>::random(2, tb ? s.n : s.k, tb ? s.k : s.n, 2 * gap);
        Matrix<C> c(s.m, s.n, 3 * gap);
        if (accumulate) c = Matrix<C>::random(3, s.m, s.n, 3 * gap);
        Values expected = accumulate ? c.values() : Values(static_cast<std::size_t>(s.m * s.n));
        const Values left = a.values(), right = b.values();
        for (std::int64_t i = 0; i < s.m; ++i)
          for (std::int64_t j = 0; j < s.n; ++j) {
            double sum = expected[static_cast<std::size_t>(i * s.n + j)];
            for (std::int64_t l = 0; l < s.k; ++l)
              sum += left[static_cast<std::size_t>(ta ? l * s.m + i : i * s.k + l)] *
                     right[static_cast<std::size_t>(tb ? j * s.k + l : l * s.n + j)];
            expected[static_cast<std::size_t>(i * s.n + j)] = sum;
          }
        enqueue(rank.stream, Matmul<A, C>{.a = {a.view(), ta},
                                          .b = {b.view(), tb},
                                          .c = c.view(),
                                          .write = accumulate ? Write::accumulate : Write::overwrite});
        EXPECT_LT(difference(c.values(), expected), (bound<A, C>())) << s.m << " " << s.n << " " << s.k << " " << flags;
        EXPECT_TRUE(c.gaps_untouched());
      }
    EXPECT_EQ(rank.arena.used(), 0);
  }
}

TEST(Matmul, WithoutProductsIsZeroOrNothing) {
  Rank rank(1);
  const Tensor<const float> a(nullptr, {2, 0}), b(nullptr, {0, 3});
  auto c = Matrix<float>::random(1, 2, 3, 2);
  const Values before = c.values();
  enqueue(rank.stream, Matmul<float>{.a = a, .b = b, .c = c.view(), .write = Write::accumulate});
  EXPECT_EQ(c.values(), before);
  enqueue(rank.stream, Matmul<float>{.a = a, .b = b, .c = c.view()});
  EXPECT_EQ(c.values(), Values(6, 0));
  EXPECT_TRUE(c.gaps_untouched());
  enqueue(rank.stream,
          Matmul<float>{.a = Tensor<const float>(nullptr, {0, 2}), .b = c.input(), .c = {nullptr, {0, 3}}});
}

TEST(Matmul, CountsFlopsAndListsProblems) {
  Rank rank(1);
  std::vector<MatmulRecord> records;
  rank.stream.counters.matmuls = &records;
  const auto a = Matrix<bf16>::random(1, 4, 3), b = Matrix<bf16>::random(2, 5, 4);
  Matrix<float> c(3, 5);
  enqueue(rank.stream, Matmul<bf16, float>{.a = transposed(a.view()), .b = transposed(b.view()), .c = c.view()});
  EXPECT_EQ(rank.stream.counters.matmul_flops, 2 * 3 * 5 * 4);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].m, 3);
  EXPECT_EQ(records[0].n, 5);
  EXPECT_EQ(records[0].k, 4);
  EXPECT_TRUE(records[0].a_transposed && records[0].b_transposed && !records[0].accumulate);
  EXPECT_TRUE(records[0].operands == DType::bf16 && records[0].result == DType::f32);
}

TEST(Matmul, RefusesShapesThatDoNotMeet) {
  Rank rank(1);
  const auto a = Matrix<float>::random(1, 2, 3), b = Matrix<float>::random(2, 2, 3);
  Matrix<float> c(2, 3);
  EXPECT_THROW((enqueue(rank.stream, Matmul<float>{.a = a.view(), .b = b.view(), .c = c.view()})), LogicError);
}

}  // namespace
}  // namespace fsdp::device
