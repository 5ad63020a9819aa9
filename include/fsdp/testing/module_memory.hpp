// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory for modules under test: tensors with guard elements in one flat buffer, as in a slot of unsharded weights; a
/// module's weights and gradients in such buffers; a rank's arena and stream.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/nn/module.hpp>

namespace fsdp::testing {

/// Whether tensors are adjacent, or each tensor starts at a multiple of 64 elements.
enum class Placing : std::uint8_t { adjacent, padded };

/// Owns tensors of one type. On a device without storage it has only their addresses. Tensors are initialised with NaN,
/// guards with 77.
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
  void set(std::size_t i, const std::vector<double>& values) {
    require(static_cast<std::int64_t>(values.size()) == shapes_[i].numel(),
            "a slot's tensor takes as many values as it has");
    for (std::size_t k = 0; k < values.size(); ++k)
      (*this)[i].data()[k] = static_cast<T>(static_cast<float>(values[k]));
  }
  std::vector<double> values(std::size_t i) {
    const Tensor<T> tensor = (*this)[i];
    return {tensor.data(), tensor.data() + tensor.numel()};
  }
  std::vector<std::vector<double>> all_values() {
    std::vector<std::vector<double>> list;
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

/// The arena and stream of one rank, with a sentinel at each end of the arena. On the CPU, all free memory can be
/// filled with NaN.
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
      : arena(make(ledger, bytes)), stream(arena, threads) {
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

/// Returns the shapes of a module's parameters, in order.
template <class Module>
std::vector<Shape> shapes_of(const Module& module) {
  std::vector<Shape> shapes;
  for (const nn::Parameter& parameter : nn::flatten<Module::template FieldsOf>(module.parameters()))
    shapes.push_back(parameter.shape);
  return shapes;
}

/// A module's weights and gradients in flat buffers.
template <class Device, class Module>
struct ModuleFields {
  static constexpr std::size_t parameter_count = Module::parameter_count;
  std::vector<Shape> shapes;
  Slot<Device, typename Module::Compute> weights;
  Slot<Device, typename Module::Accumulate> gradients;
  std::array<bool, parameter_count> written{};

  ModuleFields(const Module& module, Placing placing)
      : shapes(shapes_of(module)), weights(shapes, placing), gradients(shapes, placing) {}

  typename Module::Weights weight_views() {
    std::array<Tensor<const typename Module::Compute>, parameter_count> list;
    for (std::size_t i = 0; i < parameter_count; ++i) list[i] = weights[i];
    return nn::unflatten<Module::template FieldsOf>(list);
  }
  typename Module::Gradients gradient_views() {
    std::array<nn::GradientView<typename Module::Accumulate>, parameter_count> list;
    for (std::size_t i = 0; i < parameter_count; ++i) list[i] = {gradients[i], &written[i]};
    return nn::unflatten<Module::template FieldsOf>(list);
  }
};

}  // namespace fsdp::testing
