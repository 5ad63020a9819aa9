// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoints of a Sharded (tessera/fsdp/sharded.hpp): folders as in folder.hpp, with its tensors by name, so that any
/// number of ranks can resume under any strategy. Also loads weights from other safetensors files.
///
/// `SharedT` is a Sharded, or anything that has its `module()` and `optimizer()`. All functions are collective, and an
/// error of one rank is thrown on all.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <tessera/comm/agreement.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/checkpoint/listing.hpp>
#include <tessera/fsdp/checkpoint/shards_io.hpp>
#include <tessera/fsdp/checkpoint/weight_files.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/device/on_host.hpp>
#include <tessera/fsdp/module/group_tensors.hpp>
#include <tessera/fsdp/module/host_weights.hpp>

namespace fsdp::checkpoint {

/// Values of the host program, by name: its position in the data, a random state.
using HostValues = std::map<std::string, std::string>;
/// Returns our name of a stored tensor; an empty text drops it.
using Rename = std::function<std::string(const std::string&)>;

/// Returns the tensors of all groups, and statistics, by name.
Listing listing_of(GroupList groups, std::span<const Parameter> statistics = {});

/// Opens a step's folder, or the newest complete one in a directory, for a model with this listing; `warn` is told of
/// skipped ones. Throws InputError if there is none (it says what is wrong with the newest), or if it is of another
/// model (it names the first difference).
Checkpoint open_step(const std::filesystem::path& folder, const Listing& listing, const Warn& warn);

/// Throws InputError unless a checkpoint has step counts of as many classes of groups as this module's orders form.
void require_same_classes(const Checkpoint& from, int step_classes);

/// Throws LogicError, as a pass does, if weights are without values. `without`: their names.
void require_values(std::span<const std::string> without);

/// Returns a number that is the same on all ranks and differs from one call to another. Collective.
std::uint64_t agreed_id(const comm::Ranks& ranks);

/// Returns the stored name of each parameter. Throws InputError for a parameter that is not stored, a stored tensor
/// that is neither one of ours nor dropped, and another shape.
std::map<std::string, std::string> stored_names(const WeightFiles& files, GroupList groups, const Rename& rename);

namespace detail {

/// The statistics of a Sharded, as tensors of a file.
template <class SharedT>
std::vector<Parameter> statistics_of(SharedT& sharded) {
  std::vector<Parameter> list;
  if constexpr (requires { sharded.statistics(); })
    for (const auto& statistic : sharded.statistics().list())
      list.push_back({.name = statistic.name, .shape = statistic.shape});
  return list;
}

/// Returns whether any weight has a value that could be lost.
template <class Module>
bool holds_values(const Module& module) {
  std::size_t parameters = 0;
  for (const GroupTensors* const group : module.group_list()) parameters += group->parameters().size();
  return module.without_values().size() < parameters;
}

/// Calls f(parameter, values) with each statistic's values in host memory, and writes them back unless f only reads.
template <class SharedT, class F>
void with_statistics(SharedT& sharded, AccessKind access, F f) {
  const std::vector<Parameter> list = statistics_of(sharded);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Tensor<float> whole = sharded.statistics().values(i);
    device::OnHost<typename SharedT::Device, float> host(sharded.stream(), {whole.data(), {whole.numel()}});
    f(list[i], host.values());
    if (access == Access::write) host.write_back();
  }
}

}  // namespace detail

/// Writes weights, optimizer states, statistics, the number of steps and `values` to `dir`/step-N, which appears
/// complete or not at all, and returns its path. `values`: rank 0's are stored; UTF-8, about 60 KiB in all. Throws
/// LogicError if a weight has no value yet. After an error training may go on.
template <class SharedT>
std::filesystem::path save(SharedT& sharded, const std::filesystem::path& dir, const HostValues& values = {}) {
  auto& module = sharded.module();
  auto& optimizer = sharded.optimizer();
  const std::int64_t step = optimizer.steps();
  const std::vector<Parameter> statistics = detail::statistics_of(sharded);
  const std::uint64_t id = agreed_id(module.communicator());
  std::optional<Save> files;
  comm::together(module.communicator(), "checkpoint", [&] {
    require_values(module.without_values());
    OptimizerStates states = train::states_of(module, optimizer.optimizer());
    for (const Parameter& statistic : statistics) states.of[statistic.name] = {};
    files.emplace(dir, step, id, listing_of(module.group_list(), statistics), states);
  });
  TrainerState state{.step = step, .run = values};
  if (module.step_classes() > 1)
    state.taken = optimizer.control().taken();
  else
    state.skipped_steps = optimizer.control().skipped();
  save(*files, module.communicator(), state, [&](Save& to) {
    train::require_finite(module, optimizer);
    train::write_shards(module, optimizer, to);
    if (module.communicator().rank() != 0) return;
    detail::with_statistics(sharded, Access::read, [&](const Parameter& statistic, Tensor<float> whole) {
      to.write_weight(to.place_of(statistic.name), 0, {whole.data(), static_cast<std::size_t>(whole.numel())});
    });
  });
  return files->path();
}

/// Restores what `save` wrote, from a step's folder or the newest sound one of a directory, and returns the values.
/// `warn` is told, on every rank, of newer ones that are not complete. Throws InputError for a complete one of another
/// model, and for damage. After an error nothing has changed: if weights have values already, all is read and verified
/// first, then read again; else they stay without values, and no pass begins.
template <class SharedT>
HostValues restore(SharedT& sharded, const std::filesystem::path& folder, const Warn& warn = {}) {
  auto& module = sharded.module();
  const Checkpoint from = comm::together(module.communicator(), "checkpoint", [&] {
    return open_step(folder, listing_of(module.group_list(), detail::statistics_of(sharded)), warn);
  });
  agree_on_folder(module.communicator(), from.path());
  auto& optimizer = sharded.optimizer();
  const bool replaces = detail::holds_values(module);
  comm::together(module.communicator(), "checkpoint", [&] {
    from.check_same_optimizer(train::states_of(module, optimizer.optimizer()));
    require_same_classes(from, module.step_classes());
    for (const Parameter& statistic : detail::statistics_of(sharded))
      train::read_and_discard(0, statistic.shape.numel(), [&](std::int64_t begin, std::span<float> values) {
        from.read_weight(statistic.name, begin, std::ssize(values), values.data());
      });
    if (replaces) train::verify_shards(module, optimizer, from);
  });
  try {
    comm::together(module.communicator(), "checkpoint", [&] { train::read_shards(module, optimizer, from); });
    comm::together(module.communicator(), "checkpoint", [&] {  // they have values, also where weights have none
      detail::with_statistics(sharded, Access::write, [&](const Parameter& statistic, Tensor<float> values) {
        from.read_weight(statistic.name, 0, values.numel(), values.data());
      });
    });
  } catch (const Error&) {
    if (!replaces) train::clear_states(module, optimizer);
    throw;
  }
  train::resume_from(module, optimizer, from);
  return from.state().run;
}

/// Loads weights alone from a safetensors file, or a folder with model.safetensors or its shards. `rename` maps a
/// stored name to ours, or drops it; without it names are the same. Throws InputError for a value that is not finite.
/// After an error nothing has changed, as with `restore`.
template <class SharedT>
void load(SharedT& sharded, const std::filesystem::path& from, const Rename& rename = {}) {
  auto& module = sharded.module();
  std::optional<WeightFiles> files;
  std::map<std::string, std::string> stored;
  comm::together(module.communicator(), "weights", [&] {
    std::error_code absent;
    files = std::filesystem::is_directory(from, absent) ? WeightFiles::open(from) : WeightFiles(SafetensorsFile(from));
    stored = stored_names(*files, module.group_list(), rename);
    if (!detail::holds_values(module)) return;
    for (const auto& piece : module.shards())
      train::read_and_discard(piece.begin, piece.count(), [&](std::int64_t begin, std::span<float> values) {
        files->read_finite(stored.at(piece.parameter->name), begin, std::ssize(values), values.data());
      });
  });
  comm::together(module.communicator(), "weights", [&] {
    for (const auto& piece : module.shards())
      with_host_weights(module, piece, Access::replace, [&](Tensor<float> values, std::int64_t begin) {
        files->read_finite(stored.at(piece.parameter->name), begin, values.numel(), values.data());
      });
  });
  module.sync_model_weights();
}

}  // namespace fsdp::checkpoint
