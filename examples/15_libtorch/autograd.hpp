// SPDX-License-Identifier: Apache-2.0
// libtorch's modules as units: what autograd does between the two ends of a use. It knows no network.
//
// Each child of a torch::nn::Sequential is a unit with a graph of its own. Weights are the library's memory, which the
// modules' parameters point to, and autograd adds gradients to the library's memory: neither is copied.
//
// A unit's graph is kept from forward to backward, or made anew in backward (recomputed), which keeps its input alone.
// A graph that is kept points to weights, which must be in the same place in backward: they are where the module has
// fixed slots (the default), and where the strategy does not reshard after forward.
// A child without parameters is a unit too. One that draws random numbers (dropout) draws others where it is
// recomputed.
//
// To copy it for other modules than a Sequential: parts_of alone knows that they are children of one.
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
  std::vector<std::pair<std::string, torch::Tensor>> parameters;  ///< in the order of the unit's
  torch::Tensor input, output = {};  ///< of the forward whose backward is still to come; output only of a graph kept
};

/// The network's children. A tensor that several of them have is one tensor, by its first name: a tied weight.
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

/// What Tessera must know of them.
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

/// The library's memory as a tensor of torch's. It is borrowed, and ends with the use.
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

/// Adds the gradients of the part's weights to the library's, and returns that of its input.
template <class Use>
torch::Tensor backward(Part& part, const Use& use, const torch::Tensor& of_output) {
  torch::Tensor output = std::exchange(part.output, {});
  if (!output.defined()) {
    take_weights(part, use);
    output = part.module.forward(part.input);
  }
  for (std::size_t i = 0; i < part.parameters.size(); ++i) {
    torch::Tensor& parameter = part.parameters[i].second;
    if (parameter.data_ptr() != use.weight(i).data())  // asking for weights waits for them; a graph does not
      throw std::logic_error(part.parameters[i].first + " has moved since forward; take fixed slots, or recompute");
    const auto gradient = use.zeroed(i);
    parameter.mutable_grad() = gradient.data() != nullptr ? as_torch(gradient) : torch::Tensor();  // of a frozen one
  }
  torch::autograd::backward({output}, {of_output});
  for (auto& [name, parameter] : part.parameters) parameter.mutable_grad() = torch::Tensor();
  return std::exchange(part.input, {}).grad();
}

}  // namespace autograd
