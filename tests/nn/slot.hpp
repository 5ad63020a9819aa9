// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory for modules under test: tensors between guard elements in one flat buffer, as in a gather slot, and a rank.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <fsdp/core/checked.hpp>
#include <fsdp/device/cpu.hpp>
#include <fsdp/device/meta.hpp>

#include "reference.hpp"

namespace fsdp::nn::reference {

/// Whether tensors follow each other without a gap, or each starts at a multiple of 64 elements.
enum class Placing : std::uint8_t { adjacent, padded };

/// Owns tensors of one type; on a device without storage it has their addresses only. Starts as NaN, guards as 77.
template <class Device, class T>
class Slot {
 public:
  explicit Slot(const Shape& shape) : Slot(std::vector<Shape>{shape}, Placing::adjacent) {}
  Slot(const std::vector<Shape>& shapes, Placing placing) : shapes_(shapes) {
    std::int64_t end = 64;
    for (const Shape& shape : shapes) {
      if (placing == Placing::padded) end = round_up(end, std::int64_t{64});
      begins_.push_back(end);
      end += shape.numel();
    }
    if (!Device::counts_only) data_.assign(static_cast<std::size_t>(end + 64), T(77.0f));
    poison();
  }

  Tensor<T> operator[](std::size_t i) {
    T* const base = Device::counts_only ? reinterpret_cast<T*>(Device::unbacked(0)) : data_.data();
    return {base + begins_[i], shapes_[i]};
  }
  void poison() {
    if (Device::counts_only) return;
    for (std::size_t i = 0; i < shapes_.size(); ++i)
      std::memset(static_cast<void*>((*this)[i].data()), 0xff, static_cast<std::size_t>((*this)[i].bytes()));
  }
  void set(std::size_t i, const Values& values) {
    ASSERT_EQ(count(values), shapes_[i].numel());
    for (std::size_t k = 0; k < values.size(); ++k)
      (*this)[i].data()[k] = static_cast<T>(static_cast<float>(values[k]));
  }
  Values values(std::size_t i) {
    const Tensor<T> tensor = (*this)[i];
    return Values(tensor.data(), tensor.data() + tensor.numel());
  }
  ValueList all_values() {
    ValueList list;
    for (std::size_t i = 0; i < shapes_.size(); ++i) list.push_back(values(i));
    return list;
  }
  bool guards_untouched() const {
    std::vector<bool> guard(data_.size(), true);
    for (std::size_t i = 0; i < shapes_.size(); ++i)
      for (std::int64_t k = 0; k < shapes_[i].numel(); ++k) guard[static_cast<std::size_t>(begins_[i] + k)] = false;
    for (std::size_t k = 0; k < data_.size(); ++k)
      if (guard[k] && static_cast<double>(data_[k]) != 77) return false;
    return true;
  }

 private:
  std::vector<Shape> shapes_;
  std::vector<std::int64_t> begins_;
  std::vector<T> data_;
};

/// What T holds of these numbers.
template <class T>
Values rounded(Values values) {
  for (double& value : values) value = static_cast<double>(static_cast<float>(T(static_cast<float>(value))));
  return values;
}

/// Numbers in (center - spread, center + spread) that T can hold.
template <class T>
Values random_values(std::uint64_t seed, std::int64_t size, double spread = 1, double center = 0) {
  Values values;
  for (std::int64_t i = 0; i < size; ++i)
    values.push_back(center + spread * device::reference::random_value(seed, static_cast<std::uint64_t>(i)));
  return rounded<T>(values);
}

/// Weights for these shapes: vectors are norms, near 1, matrices keep the size of what passes through them.
template <class T>
ValueList random_weights(const std::vector<Shape>& shapes) {
  ValueList list;
  for (const Shape& shape : shapes) {
    const bool norm = shape.rank == 1;
    const double spread = norm ? 0.4 : 1.5 / std::sqrt(static_cast<double>(shape[1]));
    list.push_back(random_values<T>(100 + list.size(), shape.numel(), spread, norm ? 1 : 0));
  }
  return list;
}

/// The arena and stream of one rank, with a sentinel at each end of the arena. On the CPU all free memory can be made
/// NaN.
template <class Device>
class TestRank {
 public:
  using Arena = typename Device::Arena;
  static Arena make(device::Ledger& ledger, std::int64_t bytes) {
    if constexpr (Device::counts_only)
      return Arena::unbounded();
    else
      return Arena(ledger, bytes);
  }

  device::Ledger ledger;
  Arena arena;
  typename Device::Stream stream;

  explicit TestRank(int threads, std::int64_t bytes = std::int64_t{1} << 20)
      : arena(make(ledger, bytes)),
        stream(arena, Device::counts_only ? threads : std::min(threads, device::reference::team_sizes().back())) {
    low_ = arena.template allocate<float>(Arena::End::low, {16});
    high_ = arena.template allocate<float>(Arena::End::high, {16});
    for (const Tensor<float>& sentinel : {low_, high_})
      for (std::int64_t i = 0; i < 16 && !Device::counts_only; ++i) sentinel[i] = 77;
  }
  void poison_free_memory() {
    typename Arena::Frame frame(arena);
    const auto all = frame.template allocate<std::uint8_t>({(arena.capacity() - arena.used()) / 64 * 64});
    std::memset(all.data(), 0xff, static_cast<std::size_t>(all.bytes()));
  }
  bool sentinels_untouched() const {
    for (const Tensor<float>& sentinel : {low_, high_})
      for (std::int64_t i = 0; i < 16; ++i)
        if (sentinel[i] != 77) return false;
    return true;
  }
  std::int64_t high_end() const { return arena.mark(Arena::End::high).offset; }
  std::int64_t low_end() const { return arena.mark(Arena::End::low).offset; }

 private:
  Tensor<float> low_, high_;
};

}  // namespace fsdp::nn::reference
