// SPDX-License-Identifier: Apache-2.0
/// @file
/// Modules under test with some weights in float next to bf16 (PrecisionBy): the memory of their fields.
#pragma once

#include <string>
#include <vector>

#include <tessera/fsdp/precision/by_tensor.hpp>
#include <tessera/fsdp/testing/module_run.hpp>

namespace fsdp::testing {

using Mixed = PrecisionBy<Fp32, Bf16Mixed>;

/// Pattern of the weights that are in float, of those that may be. Names begin with "x".
inline std::string float_names = "*";

/// The weights of a module, each in T or in float.
template <class Device, class T>
class MixedSlot {
 public:
  template <class Parameters>
  MixedSlot(const Parameters& parameters, const std::vector<Shape>& shapes, Placing placing)
      : narrow_(shapes, placing), wide_(shapes, placing) {
    const TensorPattern pattern{.names = float_names};
    for (const nn::Parameter& each : parameters)
      is_float_.push_back(each.may_be_float &&
                          pattern.matches("", {.name = std::string("x") + each.name, .shape = {}}));
  }
  InEither<const T> operator[](std::size_t i) {
    if (is_float_[i]) return Tensor<const float>(wide_[i]);
    return Tensor<const T>(narrow_[i]);
  }
  bool is_float(std::size_t i) const { return is_float_[i]; }
  void set(std::size_t i, const Numbers& values) { is_float_[i] ? wide_.set(i, values) : narrow_.set(i, values); }
  void set(const std::vector<Numbers>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) set(i, values[i]);
  }
  Numbers values(std::size_t i) { return is_float_[i] ? wide_.values(i) : narrow_.values(i); }
  std::vector<Numbers> all_values() {
    std::vector<Numbers> list;
    for (std::size_t i = 0; i < is_float_.size(); ++i) list.push_back(values(i));
    return list;
  }
  bool guards_untouched() const { return narrow_.guards_untouched() && wide_.guards_untouched(); }

 private:
  Slot<Device, T> narrow_;
  Slot<Device, float> wide_;
  std::vector<bool> is_float_;
};

template <class Device, class Module>
requires takes_float_weights<Module>
struct ModuleFields<Device, Module> {
  static constexpr std::size_t parameter_count = Module::parameter_count;
  MixedSlot<Device, typename Module::Compute> weights;
  Slot<Device, float> gradients;
  std::array<bool, parameter_count> written{};

  ModuleFields(const Module& module, Placing placing)
      : ModuleFields(nn::flatten<Module::template FieldsOf>(module.parameters()), placing) {}

  typename Module::Weights weight_views() {
    std::array<InEither<const typename Module::Compute>, parameter_count> list;
    for (std::size_t i = 0; i < parameter_count; ++i) list[i] = weights[i];
    return nn::unflatten<Module::template FieldsOf>(list);
  }
  typename Module::Gradients gradient_views() {
    std::array<nn::GradientView<float>, parameter_count> list;
    for (std::size_t i = 0; i < parameter_count; ++i) list[i] = {gradients[i], &written[i]};
    return nn::unflatten<Module::template FieldsOf>(list);
  }

 private:
  using List = std::array<nn::Parameter, parameter_count>;
  ModuleFields(const List& parameters, Placing placing)
      : weights(parameters, shapes_of(parameters), placing), gradients(shapes_of(parameters), placing) {}
  static std::vector<Shape> shapes_of(const List& parameters) {
    std::vector<Shape> shapes;
    for (const nn::Parameter& parameter : parameters) shapes.push_back(parameter.shape);
    return shapes;
  }
};

}  // namespace fsdp::testing
