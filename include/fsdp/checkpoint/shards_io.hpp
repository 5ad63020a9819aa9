// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads and writes shards of weights and optimizer state: each rank accesses only the ranges of files that belong to
/// its shards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/checkpoint/finite.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/device/on_host.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>

namespace fsdp::train {

/// Returns the names of the optimizer states of each parameter of all groups. `name`: the name of the optimizer;
/// `states`: returns the state names for a parameter.
checkpoint::OptimizerStates states_of(GroupList groups, std::string_view name,
                                      FunctionRef<std::span<const std::string_view>(const Parameter&)> states);

/// The same for a module and an optimizer. Frozen parameters have no states. They are listed as frozen, unless the
/// model has adapters, whose base is never trained.
template <class Stack, class Optimizer>
checkpoint::OptimizerStates states_of(const ShardedModule<Stack>& module, const Optimizer& optimizer) {
  return states_of(
      module.group_list(), optimizer.name(),
      [&](const Parameter& parameter) -> std::span<const std::string_view> { return optimizer.states(parameter); });
}

/// Calls read(begin, values) for consecutive ranges of elements [begin, begin + count). The values are discarded, so
/// that file errors are found before a tensor changes.
template <class Read>
void read_and_discard(std::int64_t begin, std::int64_t count, Read read) {
  constexpr std::int64_t part = 1 << 20;
  std::vector<float> values(static_cast<std::size_t>(std::min(part, count)));
  for (std::int64_t done = 0; done < count; done += part)
    read(begin + done, std::span(values).first(static_cast<std::size_t>(std::min(part, count - done))));
}

/// Reads this rank's shards from a checkpoint and discards them, to verify the files.
template <class Stack, class Optimizer>
void verify_shards(const ShardedModule<Stack>& module, const optim::ShardedOptimizer<Stack, Optimizer>& optimizer,
                   const checkpoint::Checkpoint& from) {
  for (std::size_t i = 0; i < module.shards().size(); ++i) {
    const auto& shard = module.shards()[i];
    const std::string& name = shard.parameter->name;
    read_and_discard(shard.begin, shard.count(), [&](std::int64_t begin, std::span<float> values) {
      from.read_weight(name, begin, std::ssize(values), values.data());
      for (const std::string_view state : optimizer.state_names(shard))
        from.read_state(name, state, begin, std::ssize(values), values.data());
    });
  }
}

/// Sets this rank's optimizer states to zero, as before the first step.
template <class Stack, class Optimizer>
void clear_states(ShardedModule<Stack>& module, const optim::ShardedOptimizer<Stack, Optimizer>& optimizer) {
  for (std::size_t i = 0; i < module.shards().size(); ++i)
    for (const Tensor<float>& state : optimizer.states(i)) {
      device::OnHost<MainSpace<Stack>, float> host(module.stream(), state, device::Fetch::nothing);
      std::fill_n(host.values().data(), host.values().numel(), 0.0f);
      host.write_back();
    }
}

/// Reads this rank's shards of weights and optimizer state from a checkpoint, bit-identical to the written values. Call
/// `resume_from` after all ranks have read their shards.
template <class Stack, class Optimizer>
void read_shards(ShardedModule<Stack>& module, const optim::ShardedOptimizer<Stack, Optimizer>& optimizer,
                 const checkpoint::Checkpoint& from) {
  for (std::size_t i = 0; i < module.shards().size(); ++i) {
    const auto& shard = module.shards()[i];
    const std::string& name = shard.parameter->name;
    with_host_weights(module, shard, Access::replace, [&](Tensor<float> values, std::int64_t begin) {
      from.read_weight(name, begin, values.numel(), values.data());
    });
    const auto names = optimizer.state_names(shard);
    const std::span<const Tensor<float>> states = optimizer.states(i);
    for (std::size_t state = 0; state < states.size(); ++state) {
      device::OnHost<MainSpace<Stack>, float> host(module.stream(), states[state], device::Fetch::nothing);
      from.read_state(name, names[state], shard.begin, states[state].numel(), host.values().data());
      host.write_back();
    }
  }
}

/// Restores the numbers of steps done and skipped, and rounds the main weights to the model's type.
template <class Stack, class Optimizer>
void resume_from(ShardedModule<Stack>& module, optim::ShardedOptimizer<Stack, Optimizer>& optimizer,
                 const checkpoint::Checkpoint& from) {
  if (from.state().taken.empty())
    optimizer.control().resume(from.state().step, from.state().skipped_steps);
  else
    optimizer.control().resume(from.state().step, from.state().taken);
  module.sync_model_weights();
}

/// Restores this rank's shards of weights and optimizer state, and the numbers of steps. Throws InputError if another
/// optimizer wrote the checkpoint.
template <class Stack, class Optimizer>
void restore(ShardedModule<Stack>& module, optim::ShardedOptimizer<Stack, Optimizer>& optimizer,
             const checkpoint::Checkpoint& from) {
  from.check_same_optimizer(states_of(module, optimizer.optimizer()));
  read_shards(module, optimizer, from);
  resume_from(module, optimizer, from);
}

/// Writes the weights and optimizer states that this rank owns.
template <class Stack, class Optimizer>
void write_shards(ShardedModule<Stack>& module, const optim::ShardedOptimizer<Stack, Optimizer>& optimizer,
                  checkpoint::Save& save) {
  for (std::size_t i = 0; i < module.shards().size(); ++i) {
    const auto& shard = module.shards()[i];
    if (!shard.owned) continue;
    const std::size_t parameter = save.place_of(shard.parameter->name);
    const auto span_of = [](Tensor<const float> values) {
      return std::span(values.data(), static_cast<std::size_t>(values.numel()));
    };
    with_host_weights(module, shard, Access::read, [&](Tensor<const float> values, std::int64_t begin) {
      save.write_weight(parameter, begin, span_of(values));
    });
    const std::span<const Tensor<float>> states = optimizer.states(i);
    for (std::size_t state = 0; state < states.size(); ++state) {
      device::OnHost<MainSpace<Stack>, const float> host(module.stream(), states[state]);
      save.write_state(parameter, state, shard.begin, span_of(host.values()));
    }
  }
}

}  // namespace fsdp::train
