// SPDX-License-Identifier: Apache-2.0
/// @file
/// A typed, non-owning view of memory: rank 0 to 4, row-major. And a gradient's view, with the rule of its first write.
///
/// Only rows may be strided: a rank-2 view may be a range of columns of a wider matrix; all other views are contiguous.
/// A Tensor is trivially copyable, so that bit_cast turns an aggregate of tensors into an array and back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/lists.hpp>

namespace fsdp {

/// The extents of a tensor of rank 0 to 4.
struct Shape {
  std::array<std::int64_t, 4> extents{};
  std::int64_t rank = 0;

  constexpr Shape() = default;
  /// Takes at most four extents; throws InputError for more.
  constexpr Shape(std::initializer_list<std::int64_t> list) {
    if (list.size() > extents.size()) throw_too_many(list.size());
    for (std::int64_t extent : list) extents[static_cast<std::size_t>(rank++)] = extent;
  }
  /// Returns the extent of an axis, counted from 0.
  constexpr std::int64_t operator[](std::int64_t axis) const { return extents[static_cast<std::size_t>(axis)]; }
  /// Returns the number of elements.
  constexpr std::int64_t numel() const {
    std::int64_t count = 1;
    for (std::int64_t axis = 0; axis < rank; ++axis) count *= (*this)[axis];
    return count;
  }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;

 private:
  [[noreturn]] static void throw_too_many(std::size_t given);
};

/// Returns extents or a shape as text, such as "[256, 64]".
/// @{
std::string shape_text(std::span<const std::int64_t> extents);
std::string shape_text(const Shape& shape);
/// @}

/// Whether a result overwrites an output (beta = 0) or is added to it (beta = 1).
enum class Write : std::uint8_t { overwrite, accumulate };

/// A non-owning, row-major view of rank 0 to 4. Rows of a matrix may have gaps between them. Copies alias the same
/// memory; Tensor<const T> is read-only.
template <class T>
class Tensor {
 public:
  using value_type = T;

  constexpr Tensor() = default;  ///< an empty view without elements and memory
  /// Makes a contiguous view.
  constexpr Tensor(T* data, const Shape& shape)
      : data_(data), shape_(shape), row_stride_(shape.rank == 2 ? shape[1] : 1) {}

  /// Makes a view [rows, columns] with `row_stride` elements from one row to the next.
  static constexpr Tensor strided(T* data, std::int64_t rows, std::int64_t columns, std::int64_t row_stride) {
    Tensor view(data, {rows, columns});
    view.row_stride_ = row_stride;
    return view;
  }

  /// Converts to a read-only view of the same elements.
  constexpr operator Tensor<const T>() const requires(!std::is_const_v<T>) {
    return shape_.rank == 2 ? Tensor<const T>::strided(data_, rows(), columns(), row_stride_)
                            : Tensor<const T>(data_, shape_);
  }

  /// Properties of the view. `bytes` excludes gaps between rows.
  /// @{
  constexpr T* data() const { return data_; }
  constexpr const Shape& shape() const { return shape_; }
  constexpr std::int64_t rank() const { return shape_.rank; }
  constexpr std::int64_t extent(std::int64_t axis) const { return shape_[axis]; }
  constexpr std::int64_t numel() const { return shape_.numel(); }
  constexpr std::int64_t bytes() const { return numel() * static_cast<std::int64_t>(sizeof(T)); }
  constexpr std::int64_t rows() const { return shape_[0]; }
  constexpr std::int64_t columns() const { return shape_[1]; }       ///< rank 2 only
  constexpr std::int64_t row_stride() const { return row_stride_; }  ///< rank 2 only
  constexpr bool contiguous() const { return shape_.rank != 2 || row_stride_ == shape_[1] || shape_[0] <= 1; }
  /// @}
  /// Returns a pointer to row `index`, whose columns are contiguous.
  constexpr T* row(std::int64_t index) const { return data_ + index * row_stride_; }
  constexpr T& operator[](std::int64_t index) const { return data_[index]; }  ///< rank 1 only

  /// Returns the view of rows (rank 1: elements) [begin, end).
  constexpr Tensor slice(std::int64_t begin, std::int64_t end) const {
    Tensor view = *this;
    view.data_ = data_ + begin * row_stride_;
    view.shape_.extents[0] = end - begin;
    return view;
  }

  /// Returns the view of columns [begin, end) of a rank-2 view.
  constexpr Tensor slice_columns(std::int64_t begin, std::int64_t end) const {
    return strided(data_ + begin, rows(), end - begin, row_stride_);
  }

 private:
  T* data_ = nullptr;
  Shape shape_{0};
  std::int64_t row_stride_ = 1;
};

static_assert(std::is_trivially_copyable_v<Tensor<float>>);

/// A weight gradient's memory, and the flag that says whether it was written since the last reduction.
template <class T>
struct GradientView {
  Tensor<T> tensor;
  bool* written = nullptr;

  /// False for a frozen weight, whose gradient has a shape and no memory: skip what would compute it.
  bool wanted() const { return tensor.data() != nullptr; }
  /// Returns rows [begin, end); `part_written` is the flag of this part alone.
  GradientView rows(std::int64_t begin, std::int64_t end, bool* part_written) const {
    return {wanted() ? tensor.slice(begin, end) : Tensor<T>(nullptr, {end - begin, tensor.columns()}), part_written};
  }
  /// Returns columns [begin, end), with a flag of their own as in `rows`.
  GradientView columns(std::int64_t begin, std::int64_t end, bool* part_written) const {
    return {wanted() ? tensor.slice_columns(begin, end) : Tensor<T>(nullptr, {tensor.rows(), end - begin}),
            part_written};
  }

  /// Returns the mode of the next write and sets the flag: the first write overwrites (beta = 0), later writes add
  /// (beta = 1).
  Write next() const { return std::exchange(*written, true) ? Write::accumulate : Write::overwrite; }
};

}  // namespace fsdp

/// The views of the usual element types; `how` is `extern template` or `template`.
#define FSDP_TENSORS(how)                     \
  how class fsdp::Tensor<float>;              \
  how class fsdp::Tensor<const float>;        \
  how class fsdp::Tensor<fsdp::bf16>;         \
  how class fsdp::Tensor<const fsdp::bf16>;   \
  how class fsdp::Tensor<double>;             \
  how class fsdp::Tensor<const double>;       \
  how class fsdp::Tensor<std::int32_t>;       \
  how class fsdp::Tensor<const std::int32_t>; \
  how class fsdp::Tensor<std::int64_t>;       \
  how class fsdp::Tensor<const std::int64_t>;

// Compiled into the library.
FSDP_TENSORS(extern template)
FSDP_LIST(fsdp::bf16)
FSDP_LIST(fsdp::Shape)
FSDP_LIST(fsdp::Tensor<float>)
FSDP_LIST(std::vector<fsdp::Tensor<float>>)
FSDP_LIST(fsdp::Tensor<fsdp::bf16>)
