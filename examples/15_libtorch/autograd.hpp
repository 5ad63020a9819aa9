// SPDX-License-Identifier: Apache-2.0
// libtorch modules as units: the autograd code between acquiring and releasing a unit's weights. It is independent of
// the network.
//
// Each child of a torch::nn::Sequential is a unit with a separate graph. The modules' parameters point to weights in
// the library's memory, and autograd adds gradients to the library's memory: neither is copied.
//
// A unit's graph is either kept from forward to backward, or recomputed in backward, in which case only the unit's
// input is kept. A kept graph points to weights, which must be at the same address in backward. They are if the module
// has fixed slots (the default), or if the strategy does not reshard after forward. A child without parameters is a
// unit too. If it draws random numbers (dropout), recomputation draws different ones.
//
// To use it for modules other than a Sequential, copy it and change parts_of, the only function that depends on
// Sequential.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <tessera/fsdp/sharded.hpp>

namespace autograd {

enum class Graph { kept, recomputed };

/// A child of the network.
struct Part {
  std::string name;
  torch::nn::AnyModule module;
  std::vector<std::pair<std::string, torch::Tensor>> parameters;  ///< in the order of the unit's parameters
  torch::Tensor input, output = {};  ///< of the forward whose backward is pending; output only for a kept graph
};

/// Returns the network's children. A tensor that several children share is one tensor, with its first name: a tied
/// weight.
inline std::vector<Part> parts_of(const torch::nn::Sequential& network) {
  std::map<torch::TensorImpl*, std::string> names;
  std::vector<Part> parts;
  const auto children = network->named_children();
  auto module = network->begin();
  for (const auto& child : children) {
    Part& part = parts.emplace_back(Part{.name = child.key(), .module = *module++, .parameters = {}, .input = {}});
    for (const auto& parameter : child.value()->named_parameters()) {
      const auto [known, first] =
          names.try_emplace(parameter->unsafeGetTensorImpl(), part.name + "." + parameter.key());
      part.parameters.emplace_back(known->second, parameter.value());
    }
  }
  return parts;
}

/// Returns the declarations of the parts for Tessera.
inline std::vector<fsdp::Unit> units_of(const std::vector<Part>& parts) {
  std::vector<fsdp::Unit> units;
  for (const Part& part : parts) {
    fsdp::Unit& unit = units.emplace_back(fsdp::Unit{.name = part.name, .parameters = {}});
    for (const auto& [name, tensor] : part.parameters) {
      if (tensor.dim() > 4) throw std::invalid_argument(name + " has more than four extents; flatten the last ones");
      fsdp::Shape shape;
      shape.rank = tensor.dim();
      std::copy_n(tensor.sizes().begin(), tensor.dim(), shape.extents.begin());
      unit.parameters.push_back({.name = name, .shape = shape, .decays = tensor.dim() >= 2});
    }
  }
  return units;
}

/// Wraps the library's memory as a torch tensor. The tensor does not own it, and is valid until the use ends.
template <class T>
torch::Tensor as_torch(const fsdp::Tensor<T>& view) {
  const auto sizes = torch::IntArrayRef(view.shape().extents.data(), static_cast<std::size_t>(view.rank()));
  return torch::from_blob(const_cast<float*>(view.data()), sizes);
}

template <class Use>
void take_weights(Part& part, const Use& use) {
  for (std::size_t i = 0; i < part.parameters.size(); ++i) part.parameters[i].second.set_data(as_torch(use.weight(i)));
}

/// Returns the part's output, without a graph.
template <class Use>
torch::Tensor forward(Part& part, const Use& use, const torch::Tensor& input, Graph graph) {
  take_weights(part, use);
  part.input = input.detach().requires_grad_(input.is_floating_point());
  const torch::AutoGradMode mode(graph == Graph::kept);
  const torch::Tensor output = part.module.forward(part.input);
  if (graph == Graph::kept) part.output = output;
  return output.detach();
}

/// Adds the gradients of the part's weights to the library's gradients, and returns the gradient of its input.
template <class Use>
torch::Tensor backward(Part& part, const Use& use, const torch::Tensor& of_output) {
  torch::Tensor output = std::exchange(part.output, {});
  if (!output.defined()) {
    take_weights(part, use);
    output = part.module.forward(part.input);
  }
  for (std::size_t i = 0; i < part.parameters.size(); ++i) {
    torch::Tensor& parameter = part.parameters[i].second;
    if (parameter.data_ptr() != use.weight(i).data())  // use.weight waits for the weights; a graph does not
      throw std::logic_error(part.parameters[i].first + " has moved since forward; take fixed slots, or recompute");
    const auto gradient = use.zeroed(i);
    parameter.mutable_grad() = gradient.data() != nullptr ? as_torch(gradient) : torch::Tensor();  // of a frozen one
  }
  torch::autograd::backward({output}, {of_output});
  for (auto& [name, parameter] : part.parameters) parameter.mutable_grad() = torch::Tensor();
  return std::exchange(part.input, {}).grad();
}

}  // namespace autograd
