// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads and writes shards of weights and optimizer state: each rank accesses only the ranges of files that it holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/agreement.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/checkpoint/model_files.hpp>
#include <tessera/fsdp/core/finite.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/device/on_host.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>

namespace fsdp::train {

/// The memory space of main weights and optimizer state.
template <class Stack>
using MainSpace = typename ShardedModule<Stack>::Group::MainSpace;

/// Loads this rank's shards of the weights from folders that open_model has checked. Adapters keep their values if the
/// folders have none. Throws InputError for a weight that is not finite: it need not show before the last step, where
/// data do not touch it.
template <class Stack>
void load_weights(ShardedModule<Stack>& module, const checkpoint::ModelFiles& files) {
  for (const auto& piece : module.pieces()) {
    if (piece.parameter->adapter && !files.listing.lora) continue;
    with_host_weights(module, piece, Access::write, [&](Tensor<float> values, std::int64_t begin) {
      files.read_finite(piece.parameter->name, begin, values.numel(), values.data());
    });
  }
  module.sync_model_weights();
}

/// Opens a folder's model, with the adapters of another folder unless `adapter` is empty. Collective; throws on all
/// ranks if one fails, or if ranks see different files.
checkpoint::ModelFiles open_agreed_model(const comm::Ranks& ranks, const std::string& folder,
                                         const checkpoint::ReadListing& read, const checkpoint::Warn& warn,
                                         const std::string& adapter);

/// Opens a folder with open_agreed_model and loads its weights into a sharded model. Collective.
template <class Module>
void load_agreed_weights(typename Module::Comm& communicator, Module& module, const std::string& folder,
                         const checkpoint::Warn& warn, const std::string& adapter = {}) {
  const checkpoint::ModelFiles files = open_agreed_model(
      communicator, folder, checkpoint::read_listing_with<typename Module::Model>(adapter), warn, adapter);
  comm::on_all_ranks(communicator, "--model", [&] { load_weights(module, files); });
}

/// Returns the names of the optimizer's states for each parameter of all groups. `name`: of the optimizer; `states`:
/// returns its state names for a parameter.
checkpoint::OptimizerStates states_of(GroupList groups, std::string_view name,
                                      FunctionRef<std::span<const std::string_view>(const Parameter&)> states);

/// The same for a module and an optimizer. Frozen parameters have states, too. A model with adapters only has states
/// for the adapters, since its other weights are never trained.
template <class Stack, class Optimizer>
checkpoint::OptimizerStates states_of(const ShardedModule<Stack>& module, const Optimizer& optimizer) {
  return states_of(
      module.group_list(), optimizer.name(),
      [&](const Parameter& parameter) -> std::span<const std::string_view> { return optimizer.states(parameter); });
}

/// Restores this rank's shards of weights and optimizer state from a checkpoint, bit by bit, and the numbers of steps
/// done and skipped. Throws InputError if another optimizer wrote it.
template <class Stack, class Optimizer>
void restore(ShardedModule<Stack>& module, optim::ShardedOptimizer<Stack, Optimizer>& optimizer,
             const checkpoint::Checkpoint& from) {
  from.check_same_optimizer(states_of(module, optimizer.optimizer()));
  for (std::size_t i = 0; i < module.pieces().size(); ++i) {
    const auto& piece = module.pieces()[i];
    const std::string& name = piece.parameter->name;
    with_host_weights(module, piece, Access::write, [&](Tensor<float> values, std::int64_t begin) {
      from.read_weight(name, begin, values.numel(), values.data());
    });
    const auto names = optimizer.state_names(piece);
    const std::span<const Tensor<float>> states = optimizer.states(i);
    for (std::size_t state = 0; state < states.size(); ++state) {
      device::OnHost<MainSpace<Stack>, float> host(module.stream(), states[state]);
      from.read_state(name, names[state], piece.begin, states[state].numel(), host.values().data());
      host.write_back();
    }
  }
  if (from.state().taken.empty())
    optimizer.control().resume(from.state().step, from.state().skipped_steps);
  else
    optimizer.control().resume(from.state().step, from.state().taken);
  module.sync_model_weights();
}

/// Throws DivergedError for the first weight or optimizer state owned by this rank that is not finite.
template <class Stack, class Optimizer>
void require_finite(ShardedModule<Stack>& module, const optim::ShardedOptimizer<Stack, Optimizer>& optimizer) {
  for (std::size_t i = 0; i < module.pieces().size(); ++i) {
    const auto& piece = module.pieces()[i];
    if (!piece.owned) continue;
    const auto check = [&](Tensor<const float> values, std::int64_t begin, std::string_view what) {
      const std::int64_t bad = first_not_finite({values.data(), static_cast<std::size_t>(values.numel())});
      require<DivergedError>(bad < 0, what, " ", piece.parameter->name, "[", begin + bad,
                             "] is not finite; lower --lr, or look at the last steps' data");
    };
    with_host_weights(module, piece, Access::read,
                      [&](Tensor<float> values, std::int64_t begin) { check(values, begin, "weight"); });
    const auto names = optimizer.state_names(piece);
    const std::span<const Tensor<float>> states = optimizer.states(i);
    for (std::size_t state = 0; state < states.size(); ++state) {
      device::OnHost<MainSpace<Stack>, const float> host(module.stream(), states[state]);
      check(host.values(), piece.begin, names[state]);
    }
  }
}

/// Writes the weights and optimizer states that this rank owns.
template <class Stack, class Optimizer>
void write_shards(ShardedModule<Stack>& module, const optim::ShardedOptimizer<Stack, Optimizer>& optimizer,
                  checkpoint::Save& save) {
  for (std::size_t i = 0; i < module.pieces().size(); ++i) {
    const auto& piece = module.pieces()[i];
    if (!piece.owned) continue;
    const std::size_t parameter = save.place_of(piece.parameter->name);
    const auto span_of = [](Tensor<const float> values) {
      return std::span(values.data(), static_cast<std::size_t>(values.numel()));
    };
    with_host_weights(module, piece, Access::read, [&](Tensor<float> values, std::int64_t begin) {
      save.write_weight(parameter, begin, span_of(values));
    });
    const std::span<const Tensor<float>> states = optimizer.states(i);
    for (std::size_t state = 0; state < states.size(); ++state) {
      device::OnHost<MainSpace<Stack>, const float> host(module.stream(), states[state]);
      save.write_state(parameter, state, piece.begin, span_of(host.values()));
    }
  }
}

}  // namespace fsdp::train
