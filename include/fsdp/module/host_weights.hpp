// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host access to weights, for initialisation and inspection: to this rank's shards as floats, or to whole tensors,
/// also of gradients.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/units.hpp>

namespace fsdp {

/// How a callback accesses weights.
enum class AccessKind : std::uint8_t { read, write, replace };

/// The kinds as constants of different types, so that read access receives const values. `read`: the callback receives
/// const values. `write`: the callback's writes become the weights; it may leave some unchanged. `replace`: the
/// callback receives memory with arbitrary content, and must write all of it.
struct Access {
  template <AccessKind Kind>
  using Constant = std::integral_constant<AccessKind, Kind>;
  static constexpr Constant<AccessKind::read> read{};
  static constexpr Constant<AccessKind::write> write{};
  static constexpr Constant<AccessKind::replace> replace{};
};
/// One of Access's constants.
template <class As>
concept WeightAccess = std::same_as<As, Access::Constant<As::value>>;
/// The element type that a callback receives.
template <WeightAccess As, class T>
using Accessed = std::conditional_t<As::value == AccessKind::read, const T, T>;

/// Sentinel for `source`: every rank writes, and all write the same values.
inline constexpr int every_rank = -1;

namespace detail {

/// Implements with_host_weights, in parts, for a tensor that starts at element `first`.
template <class Space, class T>
void with_parts_on_host(typename Space::Queue& queue, Tensor<T> tensor, std::int64_t first, AccessKind access,
                        FunctionRef<void(Tensor<float>, std::int64_t begin)> f) {
  constexpr std::int64_t part = 1 << 20;
  const device::Fetch fetch = access == Access::replace ? device::Fetch::nothing : device::Fetch::values;
  std::vector<float> widened;
  for (std::int64_t begin = 0; begin < tensor.numel(); begin += part) {
    const std::int64_t count = std::min(part, tensor.numel() - begin);
    device::OnHost<Space, T> host(queue, {tensor.data() + begin, {count}}, fetch);
    const Tensor<T> own = host.values();
    if constexpr (std::is_same_v<T, float>) {
      f(own, first + begin);
    } else {
      widened.resize(static_cast<std::size_t>(count));
      if (access != Access::replace)
        std::transform(own.data(), own.data() + count, widened.begin(), [](T x) { return float(x); });
      f(Tensor<float>(widened.data(), {count}), first + begin);
      if (access != Access::read)
        std::transform(widened.begin(), widened.end(), own.data(), [](float x) { return T(x); });
    }
    if (access != Access::read) host.write_back();
  }
}

}  // namespace detail

/// Calls f(values, begin) with the floats of a shard that start at element `begin` of the whole tensor: main weights if
/// the shard has any, else the model's weights, converted to float. Main weights in host memory are passed in one call,
/// all other weights in parts of at most 2^20 elements. Main weights are not rounded into the model's weights here:
/// call ShardedModule::sync_model_weights.
template <class Stack, WeightAccess As>
void with_host_weights(ShardedModule<Stack>& module, const typename ShardedModule<Stack>::ParameterShard& shard,
                       As access, FunctionRef<void(Tensor<Accessed<As, float>>, std::int64_t begin)> f) {
  using Module = ShardedModule<Stack>;
  using MainSpace = typename Module::Group::MainSpace;
  const auto give = [&](Tensor<float> values, std::int64_t begin) { f(values, begin); };
  if (!shard.has_main())
    with_view(shard.model, [&](const auto& model) {
      detail::with_parts_on_host<typename Module::Device>(module.stream(), model, shard.begin, access, give);
    });
  else if constexpr (MainSpace::host_memory)
    give(device::OnHost<MainSpace, float>(module.stream(), shard.main).values(), shard.begin);
  else
    detail::with_parts_on_host<MainSpace>(module.stream(), shard.main, shard.begin, access, give);
}

namespace detail {

/// Returns, for each group, whether it has a parameter whose name matches. Throws InputError for a pattern that matches
/// no parameter.
template <class Stack>
std::vector<bool> groups_with(const ShardedModule<Stack>& module, const std::vector<std::string>& names) {
  const std::vector<const GroupTensors*>& groups = module.group_list();
  std::vector<bool> wanted(groups.size());
  for (const std::string& name : names) {
    bool found = false;
    for (std::size_t g = 0; g < wanted.size(); ++g)
      for (const Parameter& parameter : groups[g]->parameters())
        if (matches_any({name}, parameter.name)) found = wanted[g] = true;
    require<InputError>(found, "with_full_parameters: '", name, "' matches no parameter of the model");
  }
  return wanted;
}

/// Returns `hash` extended by the bytes of a tensor.
template <class T>
std::uint64_t hash_of(std::uint64_t hash, Tensor<T> values) {
  return hashed(
      hash, std::string_view(reinterpret_cast<const char*>(values.data()), static_cast<std::size_t>(values.bytes())));
}

/// Throws InputError on all ranks unless they wrote the same values; compares the hashes `written`.
inline void require_same_writes(const comm::Ranks& ranks, std::uint64_t written, const std::string& group,
                                std::string_view call = "with_full_parameters") {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(ranks.size()));
  ranks.gather_bytes(std::as_bytes(std::span(&written, 1)), std::as_writable_bytes(std::span(all)),
                     {"written weights"});
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    require<InputError>(all[rank] == all[0], call, ": rank ", rank, " wrote other values of ", group,
                        " than rank 0; each rank keeps its own part, so all must write the same");
}

/// The part of a parameter that a rank stores: a hash of the element ranges and a hash of the values; 0 if the rank
/// stores none.
struct StoredPart {
  std::uint64_t elements = 0, values = 0;
};

/// Throws InputError on all ranks if ranks that store the same elements of a parameter have different values for them.
/// `mine` is indexed like `names`, which is the same on all ranks. Collective.
void require_same_replicas(const comm::Ranks& ranks, std::string_view call, std::span<const std::string_view> names,
                           std::span<const StoredPart> mine);

/// If Options::checks is set, calls require_same_replicas for all weights. `call`: the function that set them, for the
/// message. Collective.
template <class Stack>
void check_replicas(ShardedModule<Stack>& module, std::string_view call) {
  if (!module.communicator().monitor().options.checks) return;
  std::vector<std::string_view> names;
  std::vector<std::size_t> first;  // index in `names` of each group's first parameter
  for (const GroupTensors* const group : module.group_list()) {
    first.push_back(names.size());
    for (const Parameter& parameter : group->parameters()) names.push_back(parameter.name);
  }
  std::vector<StoredPart> held(names.size());
  for (const auto& shard : module.shards()) {
    const auto group = static_cast<std::size_t>(shard.group);
    const auto index = static_cast<std::size_t>(shard.parameter - module.group_list()[group]->parameters().data());
    StoredPart& part = held[first[group] + index];
    part.elements = hashed(hashed(part.elements, shard.begin), shard.count());
    with_host_weights(module, shard, Access::read,
                      [&](Tensor<const float> values, std::int64_t) { part.values = hash_of(part.values, values); });
  }
  require_same_replicas(module.communicator(), call, names, held);
}

}  // namespace detail

/// Calls f(parameter, tensor) on every rank for each parameter whose name matches one of `names` (with * and ?); the
/// tensor is the whole parameter, of type Main and in host memory, and const if `access` is Access::read. After a
/// write, each rank takes its own part of the tensor as the new weights; throws InputError on all ranks if they wrote
/// different values. With a `source`, all ranks take the values that this rank wrote. Gathers one group at a time, in
/// memory that is not part of the plan. Collective. Idea: DeepSpeed's GatheredParameters and FSDP's summon_full_params.
template <class Stack, class F, WeightAccess As = Access::Constant<AccessKind::read>>
requires std::invocable<F&, const Parameter&, Tensor<Accessed<As, typename Stack::Precision::Main>>>
void with_full_parameters(ShardedModule<Stack>& module, const std::vector<std::string>& names, F f, As access = {},
                          int source = every_rank) {
  using Module = ShardedModule<Stack>;
  using Device = typename Module::Device;
  using Main = typename Module::Main;
  using Block = device::Block<Device>;
  const auto size = static_cast<std::int64_t>(sizeof(Main));
  require<InputError>(source >= every_rank && source < module.communicator().size(), "with_full_parameters: rank ",
                      source, " is to write the weights, and there are ", module.communicator().size());
  const std::vector<bool> wanted = detail::groups_with(module, names);
  const auto give_group = [&]<class Group>(Group& group, const std::string& group_name) {
    const buffer::Layout& layout = group.layout();
    const Block part(module.ledger(), device::MemoryKind::gathered, checked_multiply(group.model_size(), size));
    const Block full(module.ledger(), device::MemoryKind::gathered, checked_multiply(layout.full_size, size));
    Main* const data = reinterpret_cast<Main*>(full.data());
    group.gather_main(module.stream(), reinterpret_cast<Main*>(part.data()), data);
    module.synchronize();
    std::uint64_t digest = hash_seed;
    for (std::size_t i = 0; i < group.parameters().size(); ++i) {
      if (!matches_any(names, group.parameters()[i].name)) continue;
      device::OnHost<Device, Main> host(module.stream(), {data + layout.offsets[i], layout.shapes[i]});
      f(group.parameters()[i], Tensor<Accessed<As, Main>>(host.values()));
      if (access == Access::read) continue;
      const Tensor<Main> written = host.values();
      if (source == every_rank)
        digest = detail::hash_of(digest, written);
      else
        comm::broadcast(module.communicator(),
                        {reinterpret_cast<std::byte*>(written.data()), static_cast<std::size_t>(written.bytes())},
                        source, {"written weights"});
      host.write_back();
    }
    if (access == Access::read) return;
    if (source == every_rank) detail::require_same_writes(module.communicator(), digest, group_name);
    for (const buffer::TensorRange& range : group.model_part().ranges()) {
      const std::int64_t at = layout.offsets[static_cast<std::size_t>(range.tensor)] + range.begin;
      const Tensor<const Main> written(data + at, {range.count});
      if (group.has_main())
        device::enqueue(module.stream(), device::Copy<Main>{.x = written, .y = group.main().range(range)});
      else
        device::enqueue(module.stream(), device::Copy<Main, typename Group::Compute>{
                                             .x = written, .y = group.model_part().range(range)});
    }
    module.synchronize();  // before the full weights are freed
  };
  for (std::size_t g = 0; g < wanted.size(); ++g)
    if (wanted[g]) with_group(module.groups()[g], [&](auto& group) { give_group(group, module.names().groups[g]); });
  if (access != Access::read)
    module.sync_model_weights([&](const std::string& name) { return matches_any(names, name); });
}

/// Calls f(parameter, tensor) on every rank with the whole tensor, in host memory, of each trained parameter whose name
/// matches one of `names`. `read(i, values)` copies this rank's values of shard i to host memory. Unless `access` is
/// Access::read, `write(i, values)` then takes this rank's part of the tensor, also of replicas; throws InputError on
/// all ranks if they wrote different values. With a `source`, all ranks take the values that this rank wrote. One
/// parameter is collected at a time, in memory that is not part of the plan. Collective. `call`: the function, for
/// messages.
template <class Stack, class F, WeightAccess As>
void with_full_values(ShardedModule<Stack>& module, std::string_view call, const std::vector<std::string>& names,
                      FunctionRef<void(std::size_t, Tensor<float>)> read,
                      FunctionRef<void(std::size_t, Tensor<const float>)> write, F f, As access, int source) {
  auto& communicator = module.communicator();
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const std::vector<bool> wanted = detail::groups_with(module, names);
  module.synchronize();
  for (std::size_t g = 0; g < wanted.size(); ++g) {
    const GroupTensors& group = *module.group_list()[g];
    if (!wanted[g] || !group.facts().trainable) continue;
    for (const Parameter& parameter : group.parameters()) {
      if (!matches_any(names, parameter.name)) continue;
      std::vector<std::size_t> mine;  // indices of the parameter's shards that this rank owns
      for (std::size_t i = 0; const auto& shard : module.shards()) {
        if (shard.owned && shard.parameter == &parameter && shard.count() > 0) mine.push_back(i);
        ++i;
      }
      std::vector<float> whole(static_cast<std::size_t>(parameter.shape.numel()));
      std::vector<std::array<std::int64_t, 2>> ranges(ranks);  // begin and element count of each rank's next shard
      for (std::size_t next = 0;; ++next) {
        std::array<std::int64_t, 2> own{};
        if (next < mine.size()) {
          const auto& shard = module.shards()[mine[next]];
          own = {shard.begin, shard.count()};
          read(mine[next], {whole.data() + own[0], {own[1]}});
        }
        comm::gather_bytes(communicator, std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(ranges)),
                           {"parts of a tensor"});
        const auto there = [](const auto& range) { return range[1] > 0; };
        if (std::none_of(ranges.begin(), ranges.end(), there)) break;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          if (!there(ranges[rank])) continue;
          const std::span<float> part(whole.data() + ranges[rank][0], static_cast<std::size_t>(ranges[rank][1]));
          comm::broadcast(communicator, std::as_writable_bytes(part), static_cast<int>(rank), {"parts of a tensor"});
        }
      }
      const Tensor<float> all(whole.data(), parameter.shape);
      f(parameter, Tensor<Accessed<As, float>>(all));
      if (access == Access::read) continue;
      if (source == every_rank)
        detail::require_same_writes(communicator, detail::hash_of(hash_seed, all), parameter.name, call);
      else
        comm::broadcast(communicator, std::as_writable_bytes(std::span(whole)), source, {"written values"});
      for (std::size_t i = 0; const auto& shard : module.shards()) {
        if (shard.parameter == &parameter && shard.count() > 0) write(i, {whole.data() + shard.begin, {shard.count()}});
        ++i;
      }
    }
  }
}

/// Calls f(parameter, tensor) with whole gradients at rest: reduced over ranks, and scaled by the loss scale if there
/// is one; see with_full_values. Call it between a training pass and the step. Throws LogicError if no training pass
/// was finished since the last step.
template <class Stack, class F, WeightAccess As = Access::Constant<AccessKind::read>>
void with_full_gradients(ShardedModule<Stack>& module, const std::vector<std::string>& names, F f, As access = {},
                         int source = every_rank) {
  using Device = typename Stack::Device;
  require(module.progress().state == PassProgress::State::idle && module.progress().has_gradients,
          "with_full_gradients: no training pass was finished since the last step");
  const auto read = [&](std::size_t i, Tensor<float> values) {
    device::OnHost<Device, const float> host(module.stream(), module.shards()[i].gradient);
    std::copy_n(host.values().data(), values.numel(), values.data());
  };
  const auto write = [&](std::size_t i, Tensor<const float> values) {
    const Tensor<const float> own = module.shards()[i].gradient;  // of the module, which shows it to readers alone
    device::OnHost<Device, float> host(module.stream(), {const_cast<float*>(own.data()), own.shape()},
                                       device::Fetch::nothing);
    std::copy_n(values.data(), values.numel(), host.values().data());
    host.write_back();
  };
  with_full_values(module, "with_full_gradients", names, read, write, f, access, source);
}

}  // namespace fsdp

// Initial weights. They depend on the seed, the parameter's name and the global index only, not on sharding.
namespace fsdp::optim {

/// Returns element `index` of the standard normal sequence that belongs to `key` (Box and Muller 1958).
double normal_at(std::uint64_t key, std::int64_t index);

/// Sets `weights` to the initial values of elements [begin, begin + weights.numel()) of a parameter, which do not
/// depend on the number of `threads`; 0: as many threads as the calling thread's OpenMP team has.
void initialize(Tensor<float> weights, const Parameter& parameter, std::int64_t begin, std::uint64_t seed,
                int threads = 0);

/// Which parameters are initialized.
enum class Initialized : std::uint8_t { all, adapters };

/// Initializes the elements that this rank owns with the rank's own threads, in parts that are copied to the device.
/// With Options::checks it is collective, and throws InputError on all ranks, before anything is written, unless all
/// ranks pass the same seed.
template <class Stack>
void initialize(ShardedModule<Stack>& module, std::uint64_t seed, Initialized which = Initialized::all) {
  comm::check_same(module.communicator(), "initialize", "initialize: ranks give other seeds for all tensors",
                   [&] { return message("seed = ", seed); });
  int threads = 0;
  if constexpr (ShardedModule<Stack>::Device::host_memory) threads = module.stream().threads();
  for (const auto& shard : module.shards()) {
    if (which == Initialized::adapters && !shard.parameter->adapter) continue;
    with_host_weights(module, shard, Access::replace, [&](Tensor<float> values, std::int64_t begin) {
      initialize(values, *shard.parameter, begin, seed, threads);
    });
  }
  module.sync_model_weights();
}

}  // namespace fsdp::optim
