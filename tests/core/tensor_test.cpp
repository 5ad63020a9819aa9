// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/tensor.hpp>

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace fsdp {
namespace {

static_assert(std::is_convertible_v<Tensor<float>, Tensor<const float>>);
static_assert(!std::is_convertible_v<Tensor<const float>, Tensor<float>>);
static_assert(!std::is_convertible_v<Tensor<float>, Tensor<const double>>);
static_assert(std::is_trivially_copyable_v<Tensor<const bf16>>);

static_assert(Shape{}.numel() == 1 && Shape{}.rank == 0);
static_assert(Shape{2, 3, 5, 7}.numel() == 210 && Shape{2, 0, 5}.numel() == 0);
static_assert(Shape{2, 3} == Shape{2, 3} && !(Shape{2, 3} == Shape{2, 3, 1}) && !(Shape{2} == Shape{3}));

/// Values 0, 1, 2, ...: the value of an element is its position.
std::vector<int> counted(std::int64_t size) {
  std::vector<int> values(static_cast<std::size_t>(size));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

/// A tensor x [3, 4] of such values.
struct Counted {
  std::vector<int> memory = counted(12);
  Tensor<int> x{memory.data(), {3, 4}};
};

/// Element (i, j), by the address arithmetic that kernels use.
template <class T>
T at(const Tensor<T>& x, std::int64_t i, std::int64_t j) {
  return x.row(i)[j];
}

TEST(Tensor, IsEmptyByDefault) {
  const Tensor<float> nothing;
  EXPECT_EQ(nothing.data(), nullptr);
  EXPECT_EQ(nothing.shape(), Shape{0});
  EXPECT_EQ(nothing.numel(), 0);
  EXPECT_EQ(nothing.bytes(), 0);
  EXPECT_TRUE(nothing.contiguous());
}

TEST(Tensor, AScalarIsATensorOfRankZero) {
  float number = 3;
  const Tensor<float> scalar(&number, {});
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.numel(), 1);
}

TEST(Tensor, RowsOfAContiguousTensorAreAdjacent) {
  const Counted counted;
  const Tensor<int>& x = counted.x;
  EXPECT_EQ(x.rows(), 3);
  EXPECT_EQ(x.columns(), 4);
  EXPECT_EQ(x.row_stride(), 4);
  EXPECT_EQ(x.numel(), 12);
  EXPECT_EQ(x.bytes(), 48);
  EXPECT_TRUE(x.contiguous());
  EXPECT_EQ(at(x, 2, 1), 9);
}

TEST(Tensor, ASliceOfRowsStaysContiguous) {
  const Counted counted;
  const Tensor<int> rows = counted.x.slice(1, 3);
  EXPECT_EQ(rows.shape(), (Shape{2, 4}));
  EXPECT_TRUE(rows.contiguous());
  EXPECT_EQ(at(rows, 0, 0), 4);
  EXPECT_EQ(at(rows, 1, 3), 11);
}

TEST(Tensor, ASliceOfColumnsKeepsTheStride) {
  const Counted counted;
  const Tensor<int> columns = counted.x.slice_columns(1, 3);
  EXPECT_EQ(columns.shape(), (Shape{3, 2}));
  EXPECT_EQ(columns.row_stride(), 4);
  EXPECT_FALSE(columns.contiguous());
  EXPECT_EQ(columns.bytes(), 24);
  EXPECT_EQ(at(columns, 0, 0), 1);
  EXPECT_EQ(at(columns, 2, 1), 10);
}

TEST(Tensor, RowsAndColumnsSliceInEitherOrder) {
  auto memory = counted(30);
  const Tensor<int> x(memory.data(), {5, 6});
  const Tensor<int> a = x.slice(1, 4).slice_columns(2, 5);
  const Tensor<int> b = x.slice_columns(2, 5).slice(1, 4);

  EXPECT_EQ(a.data(), b.data());
  EXPECT_EQ(a.shape(), b.shape());
  EXPECT_EQ(a.row_stride(), b.row_stride());
  EXPECT_EQ(at(a, 2, 2), 3 * 6 + 4);
  EXPECT_EQ(at(a.slice_columns(1, 3).slice(1, 2), 0, 1), 2 * 6 + 4);
}

TEST(Tensor, OneStridedRowIsContiguousAndAnEmptySliceHasNoElements) {
  const Counted counted;
  EXPECT_TRUE(counted.x.slice_columns(1, 3).slice(2, 3).contiguous());
  EXPECT_EQ(counted.x.slice(2, 2).numel(), 0);
  EXPECT_EQ(counted.x.slice(2, 2).bytes(), 0);
}

TEST(Tensor, ARankOneSliceCountsElements) {
  auto memory = counted(7);
  const Tensor<int> part = Tensor<int>(memory.data(), {7}).slice(2, 5);
  EXPECT_EQ(part.numel(), 3);
  EXPECT_EQ(part[0], 2);
  EXPECT_EQ(part[2], 4);
}

TEST(Tensor, AConstViewKeepsShapeAndStride) {
  const Counted counted;
  const Tensor<int> columns = counted.x.slice_columns(1, 3);
  const Tensor<const int> view = columns;

  EXPECT_EQ(view.data(), columns.data());
  EXPECT_EQ(view.shape(), columns.shape());
  EXPECT_EQ(view.row_stride(), 4);

  const Tensor<const int> cube = Tensor<int>(counted.x.data(), {2, 3, 2});
  EXPECT_EQ(cube.shape(), (Shape{2, 3, 2}));
}

}  // namespace
}  // namespace fsdp
