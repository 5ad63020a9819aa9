// SPDX-License-Identifier: Apache-2.0
// Tensors as views of other libraries. The types here are stand-ins for Eigen, std::mdspan and DLPack's header.
#include <tessera/fsdp/core/views.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp {
namespace {

/// Constructed like Eigen::Map<const Matrix<Scalar, Dynamic, Dynamic, RowMajor>>.
template <class ScalarT, class Pointer>
struct MapLike {
  using Scalar = ScalarT;
  using Index = std::ptrdiff_t;
  MapLike(Pointer* begin, Index row_count, Index column_count) : data(begin), rows(row_count), columns(column_count) {}
  Pointer* data;
  Index rows, columns;
};
using Map = MapLike<float, float>;
using ConstMap = MapLike<float, const float>;

/// Like an Eigen::Map of a type with these extents (-1: dynamic), storage order and strides.
template <int rows_of, int columns_of, bool row_major, int inner = 1>
struct EigenLike : ConstMap {
  enum { RowsAtCompileTime = rows_of, ColsAtCompileTime = columns_of, IsRowMajor = row_major };
  using ConstMap::ConstMap;
  Index innerStride() const { return inner; }
  Index outerStride() const { return inner * columns; }
};
template <bool row_major>
using MatrixLike = EigenLike<-1, -1, row_major>;
static_assert(detail::is_row_major<MatrixLike<true>>() && !detail::is_row_major<MatrixLike<false>>());
static_assert(detail::is_row_major<EigenLike<-1, 1, false>>(), "a column has no order");

/// A type of two bytes, like Eigen::bfloat16.
struct TheirBf16 {
  std::uint16_t bits;
};

/// Like a std::mdspan with dynamic extents only.
template <class T, int rank_of>
struct MdspanLike {
  static constexpr std::size_t rank() { return rank_of; }
  template <class... Extents>
  explicit MdspanLike(T* begin, Extents... list) : data(begin), extents{static_cast<std::size_t>(list)...} {}
  T* data;
  std::array<std::size_t, rank_of> extents;
};

/// Like a std::mdspan with these strides. Its first extent is static unless `fixed` is 0.
template <std::array<std::size_t, 2> strides, std::size_t fixed = 0>
struct LaidOut : MdspanLike<float, 2> {
  using MdspanLike<float, 2>::MdspanLike;
  std::size_t extent(std::size_t axis) const { return axis == 0 && fixed > 0 ? fixed : extents[axis]; }
  std::size_t stride(std::size_t axis) const { return strides[axis]; }
};

TEST(AsEigen, MapsTheFirstExtentToRowsAndTheOthersToColumns) {
  std::array<float, 24> values{};
  const Map matrix = as_eigen<Map>(Tensor<float>(values.data(), {4, 6}));
  EXPECT_EQ(matrix.data, values.data());
  EXPECT_EQ(matrix.rows, 4);
  EXPECT_EQ(matrix.columns, 6);
  const auto kernel = as_eigen<ConstMap>(Tensor<const float>(values.data(), {2, 3, 2, 2}));
  EXPECT_EQ(kernel.rows, 2);
  EXPECT_EQ(kernel.columns, 12);
  const auto vector = as_eigen<ConstMap>(Tensor<const float>(values.data(), {5}));
  EXPECT_EQ(vector.rows, 1);
  EXPECT_EQ(vector.columns, 5);
  const auto scalar = as_eigen<ConstMap>(Tensor<const float>(values.data(), Shape{}));
  EXPECT_EQ(scalar.rows * scalar.columns, 1);
  const auto none = as_eigen<Map>(Tensor<float>(values.data(), {0, 3}));
  EXPECT_EQ(none.rows, 0);
  EXPECT_EQ(none.columns, 3);
}

TEST(AsEigen, AcceptsAScalarTypeOfTheSameSize) {
  std::array<bf16, 6> values{};
  const auto map = as_eigen<MapLike<TheirBf16, const TheirBf16>>(Tensor<const bf16>(values.data(), {2, 3}));
  EXPECT_EQ(static_cast<const void*>(map.data), values.data());
}

TEST(AsEigen, RefusesStridedRows) {
  std::array<float, 12> values{};
  EXPECT_THROW(as_eigen<Map>(Tensor<float>::strided(values.data(), 2, 3, 6)), LogicError);
}

TEST(AsEigen, MapsAVectorToAColumnVectorType) {
  std::array<float, 12> values{};
  using Column = EigenLike<-1, 1, false>;
  const auto column = as_eigen<Column>(Tensor<const float>(values.data(), {5}));
  EXPECT_EQ(column.rows, 5);
  EXPECT_EQ(column.columns, 1);
  EXPECT_EQ(as_eigen<Column>(Tensor<const float>(values.data(), {5, 1})).rows, 5);
  EXPECT_THROW(as_eigen<Column>(Tensor<const float>(values.data(), {4, 3})), LogicError);
}

TEST(AsEigen, RefusesFixedSizesAndStridesThatDifferFromTheTensor) {
  std::array<float, 12> values{};
  const Tensor<const float> tensor(values.data(), {4, 3});
  EXPECT_EQ((as_eigen<EigenLike<4, 3, true>>(tensor).rows), 4);
  EXPECT_THROW((as_eigen<EigenLike<3, 3, true>>(tensor)), LogicError);
  EXPECT_THROW((as_eigen<EigenLike<-1, 4, true>>(tensor)), LogicError);
  EXPECT_THROW((as_eigen<EigenLike<-1, -1, true, 2>>(tensor)), LogicError);
}

TEST(AsMdspan, RefusesOtherLayoutsAndMismatchedStaticExtents) {
  std::array<float, 12> values{};
  const Tensor<float> tensor(values.data(), {4, 3}), square(values.data(), {3, 3});
  using Right = LaidOut<std::array<std::size_t, 2>{3, 1}>;
  EXPECT_EQ(as_mdspan<Right>(tensor).data, values.data());
  EXPECT_THROW((as_mdspan<LaidOut<std::array<std::size_t, 2>{1, 4}>>(tensor)), LogicError) << "std::layout_left";
  EXPECT_THROW((as_mdspan<LaidOut<std::array<std::size_t, 2>{3, 1}, 3>>(tensor)), LogicError);
  EXPECT_EQ((as_mdspan<LaidOut<std::array<std::size_t, 2>{3, 1}, 3>>(square).data), values.data());
}

TEST(AsMdspan, HasTheTensorsExtents) {
  std::array<float, 24> values{};
  using Cube = MdspanLike<float, 3>;
  const Cube cube = as_mdspan<Cube>(Tensor<float>(values.data(), {2, 3, 4}));
  EXPECT_EQ(cube.data, values.data());
  EXPECT_EQ(cube.extents, (std::array<std::size_t, 3>{2, 3, 4}));
  EXPECT_THROW(as_mdspan<Cube>(Tensor<float>(values.data(), {6, 4})), LogicError);
  using Matrix = MdspanLike<const float, 2>;
  EXPECT_THROW(as_mdspan<Matrix>(Tensor<const float>::strided(values.data(), 2, 3, 6)), LogicError);
}

// The structs of dlpack.h, version 1.0.
enum DLDeviceType : std::int32_t { kDLCPU = 1, kDLCUDA = 2 };
struct DLDevice {
  DLDeviceType device_type;
  std::int32_t device_id;
};
struct DLDataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct DLPackVersion {
  std::uint32_t major, minor;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};

/// Calls the deleter of to_dlpack's result, as a consumer does.
struct Delete {
  template <class Managed>
  void operator()(Managed* managed) const {
    managed->deleter(managed);
  }
};
template <class Managed>
using Taken = std::unique_ptr<Managed, Delete>;

template <class Managed, class T>
Taken<Managed> taken(const Tensor<T>& tensor, std::shared_ptr<const void> keeps = nullptr) {
  return Taken<Managed>(to_dlpack<Managed>(tensor, dlpack_cpu, 0, std::move(keeps)));
}

TEST(Views, RefuseTheGradientOfAFrozenParameter) {
  bool written = false;
  const GradientView<float> gradient{Tensor<float>(nullptr, {4, 3}), &written};
  ASSERT_FALSE(gradient.wanted());
  EXPECT_THROW(as_eigen<Map>(gradient.tensor), LogicError);
  EXPECT_THROW((as_mdspan<MdspanLike<float, 2>>(gradient.tensor)), LogicError);
  EXPECT_THROW((taken<DLManagedTensor>(gradient.tensor)), LogicError);
  EXPECT_EQ(as_eigen<Map>(Tensor<float>(nullptr, {0, 3})).rows, 0) << "an empty tensor needs no memory";
}

TEST(ToDlpack, DescribesTheTensor) {
  std::array<bf16, 24> values{};
  const auto managed = taken<DLManagedTensorVersioned>(Tensor<bf16>(values.data(), {2, 3, 4}));
  EXPECT_EQ(managed->version.major, 1u);
  EXPECT_EQ(managed->flags, 0u);
  const DLTensor& view = managed->dl_tensor;
  EXPECT_EQ(view.data, values.data());
  EXPECT_EQ(view.device.device_type, kDLCPU);
  EXPECT_EQ(view.dtype.code, dlpack_bfloat);
  EXPECT_EQ(view.dtype.bits, 16);
  EXPECT_EQ(view.dtype.lanes, 1);
  EXPECT_EQ(std::vector<std::int64_t>(view.shape, view.shape + view.ndim), (std::vector<std::int64_t>{2, 3, 4}));
  EXPECT_EQ(std::vector<std::int64_t>(view.strides, view.strides + view.ndim), (std::vector<std::int64_t>{12, 4, 1}));
  EXPECT_EQ(view.byte_offset, 0u);
}

TEST(ToDlpack, KeepsTheRowStride) {
  std::array<float, 12> values{};
  const auto managed = taken<DLManagedTensor>(Tensor<float>::strided(values.data(), 2, 3, 6));
  EXPECT_EQ(managed->dl_tensor.strides[0], 6);
  EXPECT_EQ(managed->dl_tensor.strides[1], 1);
  EXPECT_THROW(from_dlpack<float>(*managed), InputError);
}

TEST(ToDlpack, ReleasesTheMemoryWhenItIsDeleted) {
  const auto values = std::make_shared<std::vector<float>>(6);
  auto managed = taken<DLManagedTensorVersioned>(Tensor<float>(values->data(), {6}), values);
  EXPECT_EQ(values.use_count(), 2);
  managed.reset();
  EXPECT_EQ(values.use_count(), 1);
}

TEST(ToDlpack, MarksReadOnlyTensors) {
  const std::array<float, 6> values{};
  const Tensor<const float> tensor(values.data(), {6});
  const auto managed = taken<DLManagedTensorVersioned>(tensor);
  EXPECT_EQ(managed->flags & dlpack_read_only, dlpack_read_only);
  EXPECT_EQ(from_dlpack<const float>(*managed).data(), values.data());
  EXPECT_THROW(from_dlpack<float>(*managed), InputError);
  EXPECT_THROW(to_dlpack<DLManagedTensor>(tensor), LogicError);
}

/// A tensor [2, 3] of another library.
struct Theirs {
  std::array<float, 8> values{};
  std::array<std::int64_t, 5> shape{2, 3, 1, 1, 1}, strides{3, 1, 1, 1, 1};
  DLManagedTensorVersioned managed{.version = {1, 0},
                                   .manager_ctx = nullptr,
                                   .deleter = nullptr,
                                   .flags = 0,
                                   .dl_tensor = {.data = values.data(),
                                                 .device = {kDLCPU, 0},
                                                 .ndim = 2,
                                                 .dtype = {dlpack_float, 32, 1},
                                                 .shape = shape.data(),
                                                 .strides = strides.data(),
                                                 .byte_offset = 0}};
  Theirs() = default;
  Theirs(const Theirs&) = delete;
  Theirs& operator=(const Theirs&) = delete;
};

TEST(FromDlpack, IsAViewOfTheSameMemory) {
  Theirs theirs;
  const Tensor<float> view = from_dlpack<float>(theirs.managed);
  EXPECT_EQ(view.data(), theirs.values.data());
  EXPECT_EQ(view.shape(), (Shape{2, 3}));
  theirs.managed.dl_tensor.strides = nullptr;  // row-major
  theirs.managed.dl_tensor.byte_offset = 2 * sizeof(float);
  EXPECT_EQ(from_dlpack<const float>(theirs.managed).data(), theirs.values.data() + 2);
  theirs.managed.dl_tensor.ndim = 0;
  EXPECT_EQ(from_dlpack<float>(theirs.managed).numel(), 1);
}

TEST(FromDlpack, IgnoresStridesOfExtentsOfOne) {
  Theirs theirs;
  theirs.managed.dl_tensor.ndim = 3;
  theirs.shape = {1, 2, 3, 1, 1};
  theirs.strides = {77, 3, 1, 1, 1};
  EXPECT_EQ(from_dlpack<float>(theirs.managed).shape(), (Shape{1, 2, 3}));
  theirs.shape = {0, 2, 3, 1, 1};
  theirs.strides = {1, 1, 1, 1, 1};
  EXPECT_EQ(from_dlpack<float>(theirs.managed).numel(), 0);
}

TEST(FromDlpack, RefusesLayoutsAndTypesThatATensorCannotRepresent) {
  const auto refused = [](const auto& change) {
    Theirs theirs;
    change(theirs);
    EXPECT_THROW(from_dlpack<float>(theirs.managed), InputError);
  };
  refused([](Theirs& theirs) { theirs.strides = {1, 2, 1, 1, 1}; });  // column-major
  refused([](Theirs& theirs) { theirs.strides = {4, 1, 1, 1, 1}; });
  refused([](Theirs& theirs) { theirs.managed.dl_tensor.dtype = {dlpack_float, 64, 1}; });
  refused([](Theirs& theirs) { theirs.managed.dl_tensor.dtype = {dlpack_int, 32, 1}; });
  refused([](Theirs& theirs) { theirs.managed.dl_tensor.dtype = {dlpack_float, 32, 4}; });
  refused([](Theirs& theirs) { theirs.managed.dl_tensor.device.device_type = kDLCUDA; });
  refused([](Theirs& theirs) { theirs.managed.dl_tensor.ndim = 5; });
  refused([](Theirs& theirs) { theirs.managed.version.major = 2; });
}

}  // namespace
}  // namespace fsdp
