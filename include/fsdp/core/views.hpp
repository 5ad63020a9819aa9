// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tensors as other libraries' views of the same memory: Eigen's maps, std::mdspan and similar types, and DLPack's
/// tensors. No header of these libraries is included; their types are template arguments.
///
///     using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
///     auto w = fsdp::as_eigen<Eigen::Map<const Matrix>>(use.weight("w"));
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp {

namespace detail {

/// Throws LogicError for a tensor that has a shape but no memory.
template <class T>
void require_memory(const Tensor<T>& t, const char* view) {
  require(t.data() != nullptr || t.numel() == 0, view,
          ": the tensor has a shape and no memory, as the gradient of a frozen parameter; ask GradientView::wanted() "
          "before you take a view of a gradient");
}

/// Whether an Eigen map is a column vector. Maps of other libraries may not provide this.
template <class Map>
consteval bool is_column() {
  if constexpr (requires { Map::ColsAtCompileTime; }) return Map::ColsAtCompileTime == 1 && Map::RowsAtCompileTime != 1;
  return false;
}
/// Whether an Eigen map stores the elements of a row contiguously.
template <class Map>
consteval bool is_row_major() {
  if constexpr (requires { Map::IsRowMajor; }) return Map::IsRowMajor || is_column<Map>();
  return true;
}

}  // namespace detail

/// Returns a row-major map [first extent, all others]; a vector is one row, or one column if `Map` is a column. `Map`
/// is an Eigen::Map of a row-major matrix or of a vector, whose scalar may be another type of the same size
/// (Eigen::bfloat16 for bf16). Throws LogicError for rows with gaps, a tensor without memory, and a map with strides or
/// fixed sizes other than the tensor's.
template <class Map, class T>
Map as_eigen(const Tensor<T>& t) {
  static_assert(
      detail::is_row_major<Map>(),
      "fsdp: as_eigen's map is column-major, Eigen's default, and a tensor is row-major: its elements would be "
      "in other places; take an Eigen::Map of Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, "
      "Eigen::RowMajor>");
  require(t.contiguous(), "as_eigen: the view's rows have gaps between them");
  detail::require_memory(t, "as_eigen");
  constexpr bool column = detail::is_column<Map>();
  const std::int64_t rows = t.rank() >= 2 ? t.extent(0) : column ? t.numel() : 1;
  std::int64_t columns = t.rank() == 1 && !column ? t.numel() : 1;
  for (std::int64_t axis = 1; axis < t.rank(); ++axis) columns *= t.extent(axis);
  if constexpr (requires { Map::RowsAtCompileTime; })  // -1: dynamic size
    require((Map::RowsAtCompileTime < 0 || Map::RowsAtCompileTime == rows) &&
                (Map::ColsAtCompileTime < 0 || Map::ColsAtCompileTime == columns),
            "as_eigen: a tensor of ", rows, " rows and ", columns, " columns, and the map's type fixes other sizes");
  using Index = typename Map::Index;
  using Scalar = std::conditional_t<std::is_const_v<T>, const typename Map::Scalar, typename Map::Scalar>;
  static_assert(sizeof(Scalar) == sizeof(T), "fsdp: as_eigen's map has a scalar of another size than the tensor's");
  const Map map(reinterpret_cast<Scalar*>(t.data()), static_cast<Index>(rows), static_cast<Index>(columns));
  if constexpr (requires { map.innerStride(); })
    require(t.numel() < 2 || (map.innerStride() == 1 && (column || rows < 2 || map.outerStride() == columns)),
            "as_eigen: the map's type has strides, and a tensor is contiguous; take a map without strides");
  return map;
}

/// Returns a view whose extents are the tensor's: `View` is a std::mdspan, or any type that is constructed from a
/// pointer and rank() extents. Throws LogicError for another rank, rows with gaps, a tensor without memory, and a view
/// that is not row-major (std::layout_right) or has fixed extents other than the tensor's.
template <class View, class T>
View as_mdspan(const Tensor<T>& t) {
  constexpr auto rank = static_cast<std::size_t>(View::rank());
  require(t.rank() == static_cast<std::int64_t>(rank) && t.contiguous(),
          "as_mdspan: a tensor of another rank, or one whose rows have gaps");
  detail::require_memory(t, "as_mdspan");
  return [&]<std::size_t... Axis>(std::index_sequence<Axis...>) {
    const View view(t.data(), t.extent(static_cast<std::int64_t>(Axis))...);
    if constexpr (requires { view.stride(rank); }) {
      std::int64_t stride = t.numel();
      [[maybe_unused]] const auto is_axis = [&](std::int64_t axis, std::int64_t extent, std::int64_t found) {
        stride /= std::max<std::int64_t>(t.extent(axis), 1);
        return extent == t.extent(axis) && (extent < 2 || t.numel() == 0 || found == stride);
      };
      require((is_axis(static_cast<std::int64_t>(Axis), static_cast<std::int64_t>(view.extent(Axis)),
                       static_cast<std::int64_t>(view.stride(Axis))) &&
               ...),
              "as_mdspan: the view is not row-major (std::layout_right), or its type fixes other extents");
    }
    return view;
  }
  (std::make_index_sequence<rank>());
}

/// Constants of DLPack 1.0 (dmlc/dlpack, dlpack.h).
/// @{
inline constexpr std::int32_t dlpack_cpu = 1, dlpack_cuda = 2;  ///< kDLCPU, kDLCUDA
inline constexpr std::uint8_t dlpack_int = 0, dlpack_uint = 1, dlpack_float = 2,
                              dlpack_bfloat = 4;      ///< kDLFloat, kDLBfloat
inline constexpr std::uint64_t dlpack_read_only = 1;  ///< DLPACK_FLAG_BITMASK_READ_ONLY
/// @}

namespace detail {

template <class T>
consteval std::uint8_t dlpack_code_of() {
  switch (dtype_of<T>()) {
    case DType::f64:
    case DType::f32:
    case DType::f16: return dlpack_float;
    case DType::bf16: return dlpack_bfloat;
    case DType::i64:
    case DType::i32: return dlpack_int;
    case DType::u8: return dlpack_uint;
  }
}

/// The state that a managed tensor owns: its shape and strides, and an object that keeps the memory alive.
template <class Managed>
struct DlpackHolder {
  Managed managed{};
  std::array<std::int64_t, 4> shape{}, strides{};
  std::shared_ptr<const void> keeps;
};

}  // namespace detail

/// Exports the tensor to DLPack: `Managed` is DLManagedTensorVersioned (1.0) or DLManagedTensor. The consumer calls its
/// deleter, which frees the description and releases `keeps`. Without `keeps` the memory is borrowed: a tensor of a Use
/// is valid until the Use ends. A read-only tensor is flagged; throws LogicError if `Managed` is DLManagedTensor, which
/// has no flag for it, and for a tensor without memory.
template <class Managed, class T>
Managed* to_dlpack(const Tensor<T>& t, std::int32_t device_type = dlpack_cpu, std::int32_t device = 0,
                   std::shared_ptr<const void> keeps = nullptr) {
  using Holder = detail::DlpackHolder<Managed>;
  constexpr bool versioned = requires(Managed managed) { managed.version; };
  detail::require_memory(t, "to_dlpack");
  require(versioned || !std::is_const_v<T>,
          "to_dlpack: DLManagedTensor cannot say that a tensor is read-only; take "
          "DLManagedTensorVersioned");
  auto holder = std::make_unique<Holder>();
  holder->keeps = std::move(keeps);
  std::int64_t stride = 1;
  for (std::int64_t axis = t.rank(); axis-- > 0;) {
    holder->shape[static_cast<std::size_t>(axis)] = t.extent(axis);
    holder->strides[static_cast<std::size_t>(axis)] = axis == 0 && t.rank() == 2 ? t.row_stride() : stride;
    stride *= t.extent(axis);
  }
  Managed& managed = holder->managed;
  auto& view = managed.dl_tensor;
  view.data = const_cast<std::remove_const_t<T>*>(t.data());
  view.device.device_type = static_cast<decltype(view.device.device_type)>(device_type);
  view.device.device_id = device;
  view.ndim = static_cast<std::int32_t>(t.rank());
  view.dtype.code = detail::dlpack_code_of<T>();
  view.dtype.bits = static_cast<std::uint8_t>(8 * sizeof(T));
  view.dtype.lanes = 1;
  view.shape = holder->shape.data();
  view.strides = holder->strides.data();
  view.byte_offset = 0;
  if constexpr (versioned) {
    managed.version.major = 1;
    managed.version.minor = 0;
    managed.flags = std::is_const_v<T> ? dlpack_read_only : 0;
  }
  managed.manager_ctx = holder.get();
  managed.deleter = [](Managed* self) { delete static_cast<Holder*>(self->manager_ctx); };
  return &holder.release()->managed;
}

/// Returns a view of a DLPack tensor, which must outlive it. Throws InputError for another element type or device, more
/// than four extents, strides that are not row-major, a major version other than 1, and a read-only tensor if T is not
/// const.
template <class T, class Managed>
Tensor<T> from_dlpack(const Managed& managed, std::int32_t device_type = dlpack_cpu) {
  const auto& view = managed.dl_tensor;
  if constexpr (requires { managed.version; }) {
    require<InputError>(managed.version.major == 1, "from_dlpack: version ", managed.version.major, "; 1 is read");
    require<InputError>(std::is_const_v<T> || (managed.flags & dlpack_read_only) == 0,
                        "from_dlpack: the tensor is read-only; take a Tensor<const T>");
  }
  require<InputError>(
      view.dtype.code == detail::dlpack_code_of<T>() && view.dtype.bits == 8 * sizeof(T) && view.dtype.lanes == 1,
      "from_dlpack: the elements are of another type: code ", int{view.dtype.code}, ", ", int{view.dtype.bits},
      " bits");
  require<InputError>(static_cast<std::int32_t>(view.device.device_type) == device_type,
                      "from_dlpack: the memory is of device type ", static_cast<std::int32_t>(view.device.device_type),
                      ", not ", device_type);
  require<InputError>(view.ndim >= 0 && view.ndim <= 4, "from_dlpack: ", view.ndim, " extents; a tensor holds 4");
  Shape shape;
  shape.rank = view.ndim;
  for (std::int64_t axis = 0; axis < shape.rank; ++axis)
    shape.extents[static_cast<std::size_t>(axis)] = view.shape[axis];
  std::int64_t stride = 1;
  const bool empty = shape.numel() == 0;  // the strides of an empty tensor are meaningless
  for (std::int64_t axis = shape.rank; axis-- > 0; stride *= shape[axis])
    require<InputError>(view.strides == nullptr || empty || shape[axis] <= 1 || view.strides[axis] == stride,
                        "from_dlpack: the strides are not those of a contiguous row-major tensor");
  return {reinterpret_cast<T*>(static_cast<std::byte*>(view.data) + view.byte_offset), shape};
}

}  // namespace fsdp
