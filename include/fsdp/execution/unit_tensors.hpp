// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tensors of a unit's computation: a Use as a value, for code that depends on device and precision but not on the
/// stack.
#pragma once

#include <array>
#include <span>

#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// A computation, and its unit's weights and gradients. Valid as long as the Use that it was created from.
template <class Compute, class Accumulate>
struct UnitTensors {
  sharding::Task task;
  const void* use = nullptr;
  void (*read_weights)(const void* use, std::span<Tensor<const Compute>> list) = nullptr;
  void (*read_gradients)(const void* use, std::span<GradientView<Accumulate>> list) = nullptr;

  /// Returns the tensors of a Use.
  template <class Use>
  static UnitTensors of(const Use& use) {
    return {.task = use.task(),
            .use = &use,
            .read_weights = [](const void* self,
                               std::span<Tensor<const Compute>> list) { static_cast<const Use*>(self)->weights(list); },
            .read_gradients =
                [](const void* self, std::span<GradientView<Accumulate>> list) {
                  static_cast<const Use*>(self)->gradients(list);
                }};
  }

  /// Return the weights or gradients of the unit's module; see Use. The first request for weights waits for their
  /// all-gather.
  /// @{
  template <class Module>
  typename Module::Weights weights(const Module&) const {
    std::array<Tensor<const Compute>, field_count<Module::template FieldsOf, Tensor<const Compute>>> list;
    read_weights(use, list);
    return unflatten<Module::template FieldsOf, Tensor<const Compute>>(list);
  }
  template <class Module>
  typename Module::Gradients gradients(const Module&) const {
    std::array<GradientView<Accumulate>, field_count<Module::template FieldsOf, GradientView<Accumulate>>> list;
    read_gradients(use, list);
    return unflatten<Module::template FieldsOf, GradientView<Accumulate>>(list);
  }
  /// @}
};

}  // namespace fsdp
