// SPDX-License-Identifier: Apache-2.0
/// @file
/// Unsharded optimizer states, for inspection.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/module/full_values.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>

namespace fsdp::optim {

/// Calls f(parameter, state, tensor) on every rank with each state of the trained parameters whose names match one of
/// `names`. Tensors are whole and in host memory. Collective. Throws InputError for a pattern that matches nothing.
template <class Stack, class Optimizer, class F>
void with_full_states(ShardedModule<Stack>& module, ShardedOptimizer<Stack, Optimizer>& optimizer,
                      const std::vector<std::string>& names, F f) {
  fsdp::detail::groups_with(module, names);
  const auto states_of = [&](const Parameter& parameter) {
    return std::span<const std::string_view>(optimizer.optimizer().states(parameter));
  };
  for (const auto& group : module.groups())
    for (const Parameter& parameter : group.parameters()) {
      if (!matches_any(names, parameter.name)) continue;
      const std::span<const std::string_view> states = states_of(parameter);
      for (std::size_t state = 0; state < states.size(); ++state) {
        const auto part = [&](std::size_t piece) -> Tensor<const float> {
          const Tensor<float>& whole = optimizer.states(piece)[state];
          return {whole.data(), {whole.numel()}};
        };
        with_full_values<typename ShardedModule<Stack>::Group::MainSpace>(
            module, {parameter.name}, part,
            [&](const Parameter& of, Tensor<const float> values) { f(of, states[state], values); });
      }
    }
}

}  // namespace fsdp::optim
