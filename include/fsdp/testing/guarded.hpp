// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tensors with guard elements, which detect writes before, after and between their rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/testing/report.hpp>

namespace fsdp::testing {

/// The elements of a tensor in float64, in row-major order.
using Numbers = std::vector<double>;

/// Returns a number in (-1, 1) that depends on `seed` and `index` only.
inline double number_at(std::uint64_t seed, std::int64_t index) {
  std::uint64_t bits = (seed + 1) * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(index) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((bits ^ (bits >> 31)) >> 11) / static_cast<double>(std::uint64_t{1} << 52) - 1.0;
}

/// Returns a shape as text: "[37, 43]".
inline std::string in_words(const Shape& shape) { return shape_text(shape); }

/// Owns a tensor with the usual alignment, with guard elements around it and in the `gap` elements after each row. The
/// elements of the tensor are initialised with the guard value too.
template <class T>
class Guarded {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  Guarded() = default;
  Guarded(const Shape& shape, T guard, std::int64_t gap = 0) : shape_(shape), guard_(guard), gap_(gap) {
    const std::int64_t rows = gap == 0 ? 1 : shape[0];
    size_ = gap == 0 ? shape.numel() : rows * (shape[1] + gap);
    memory_.assign(static_cast<std::size_t>(size_ + 2 * margin), guard);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    start_ = margin / 2 + static_cast<std::int64_t>((64 - address % 64) % 64 / sizeof(T));
  }

  Tensor<T> view() {
    T* const data = memory_.data() + start_;
    return gap_ == 0 ? Tensor<T>(data, shape_) : Tensor<T>::strided(data, shape_[0], shape_[1], shape_[1] + gap_);
  }
  const Shape& shape() const { return shape_; }
  std::int64_t numel() const { return shape_.numel(); }

  void set(const auto& value) {
    for (std::int64_t i = 0; i < numel(); ++i) memory_[at(i)] = value(i);
  }
  std::vector<T> values() const {
    std::vector<T> found;
    for (std::int64_t i = 0; i < numel(); ++i) found.push_back(memory_[at(i)]);
    return found;
  }

  /// Returns text that describes where a guard was overwritten; empty if none was.
  std::string touched() const {
    std::vector<bool> inside(memory_.size());
    for (std::int64_t i = 0; i < numel(); ++i) inside[at(i)] = true;
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if (inside[i] || same_bits(memory_[i], guard_)) continue;
      const std::int64_t place = static_cast<std::int64_t>(i) - start_;
      const std::int64_t behind = place - (size_ - gap_) + 1;
      const std::string where = place < 0    ? message("element ", -place, " before its first")
                                : behind > 0 ? message("element ", behind, " behind its last")
                                             : message("the gap behind its row ", place / (shape_[1] + gap_));
      return message(where, " was written, and is ", in_words(memory_[i]));
    }
    return "";
  }

 private:
  static constexpr std::int64_t margin = 128;  ///< guard elements: half before the tensor, the rest or more after it

  std::size_t at(std::int64_t i) const {
    const std::int64_t place = gap_ == 0 ? i : i / shape_[1] * (shape_[1] + gap_) + i % shape_[1];
    return static_cast<std::size_t>(start_ + place);
  }

  Shape shape_;
  T guard_{};
  std::int64_t gap_ = 0, size_ = 0, start_ = 0;
  std::vector<T> memory_;
};

}  // namespace fsdp::testing
