// SPDX-License-Identifier: Apache-2.0
#include "activations.hpp"

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

TYPED_TEST(MatmulOf, IsTheReferenceForEveryTranspositionStrideAndWrite) {
  for (const Case& c : Rank::variants()) {
    Rank rank(c, 16 << 20);
    expect_products<typename TypeParam::Operands, typename TypeParam::Result>(
        rank, {{1, 1, 1}, {1, 7, 3}, {3, 1, 15}, {7, 15, 1}, {15, 257, 7}, {257, 3, 64}, {64, 96, 257}, {4, 33, 1031}});
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
