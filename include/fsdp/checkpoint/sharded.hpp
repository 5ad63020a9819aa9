// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoints of a Sharded (tessera/fsdp/sharded.hpp): folders as in folder.hpp, which store tensors by name, so that
/// any number of ranks can resume under any strategy. Also loads weights from other safetensors files.
///
/// `SharedT` is a Sharded, or any type that has the same `module()` and `optimizer()`. All functions are collective,
/// and an error on one rank is thrown on all ranks.
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

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/checkpoint/listing.hpp>
#include <tessera/fsdp/checkpoint/shards_io.hpp>
#include <tessera/fsdp/checkpoint/weight_files.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/module/group_tensors.hpp>
#include <tessera/fsdp/module/host_weights.hpp>

namespace fsdp::checkpoint {

/// Values of the host program by name, such as its position in the data or the state of a random generator.
using HostValues = std::map<std::string, std::string>;
/// Returns this program's name of a stored tensor; an empty text drops the tensor.
using Rename = std::function<std::string(const std::string&)>;

/// Returns the tensors of all groups, and the statistics, by name.
Listing listing_of(GroupList groups, std::span<const Parameter> statistics = {});

/// Opens the folder of a step, or the newest complete step in a directory, for a model with this listing. `warn` is
/// called for skipped steps. Throws InputError if there is no complete step (with the problem of the newest), or if the
/// step belongs to another model (with the first difference).
Checkpoint open_step(const std::filesystem::path& folder, const Listing& listing, const Warn& warn);

/// Throws InputError unless a checkpoint has step counts for as many classes of groups as the orders of this module
/// form.
void require_same_classes(const Checkpoint& from, int step_classes);

/// Throws LogicError, as a pass does, if some weights have no values. `without`: the names of these weights.
void require_values(std::span<const std::string> without);

/// Returns a number that is the same on all ranks and differs between calls. Collective.
std::uint64_t agreed_id(const comm::Ranks& ranks);

/// Returns the stored name of each parameter. Throws InputError for a parameter that is not stored, for a stored tensor
/// that is neither a parameter nor dropped, and for a different shape.
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

/// Returns whether any weight has a value that an unsuccessful read would destroy.
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
/// complete or not at all, and returns its path. `values`: those of rank 0 are stored; UTF-8, about 60 KiB in total.
/// Throws LogicError if a weight has no value yet. After an error, training may continue.
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

/// Restores a checkpoint of `save` from the folder of a step, or from the newest valid step in a directory, and returns
/// the stored values. `warn` is called on every rank for newer steps that are not complete. Throws InputError for a
/// complete step of another model, and for damage. After an error nothing has changed. If weights already have values,
/// all data are read and verified first, then read again; otherwise weights stay without values, and no pass can begin.
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
    comm::together(module.communicator(), "checkpoint", [&] {  // statistics have values even if weights have none
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
/// stored name to the parameter's name, or drops the tensor; without it the names are the same. Throws InputError for a
/// value that is not finite. After an error nothing has changed, as with `restore`.
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
