// SPDX-License-Identifier: Apache-2.0
/// @file
/// Access to weights from the host: to this rank's parts as floats, or to whole tensors, for initialisation and
/// inspection.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/on_host.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/units.hpp>

namespace fsdp {

/// Whether the callback's writes become the weights.
enum class Access : std::uint8_t { read, write };

/// As a source: every rank writes, all the same values.
inline constexpr int every_rank = -1;

/// Calls f(values, begin) with the floats of a shard that start at element `begin` of the whole tensor. If the shard
/// has main weights, f gets all of them in one call; else it gets the model's weights, converted to float, in parts of
/// at most 2^20 elements. With Access::write, what f writes becomes the weights. Main weights are not rounded into the
/// model's weights here: call ShardedModule::sync_model_weights.
template <class Stack, class F>
void with_host_weights(ShardedModule<Stack>& module, const typename ShardedModule<Stack>::ParameterShard& shard,
                       Access access, F f) {
  using Module = ShardedModule<Stack>;
  using Compute = typename Module::Compute;
  constexpr std::int64_t part = 1 << 20;
  if (shard.has_main()) {
    device::OnHost<typename Module::Group::MainSpace, float> host(module.stream(), shard.main);
    f(host.values(), shard.begin);
    if (access == Access::write) host.write_back();
    return;
  }
  std::vector<float> values;
  for (std::int64_t begin = 0; begin < shard.count(); begin += part) {
    const std::int64_t count = std::min(part, shard.count() - begin);
    device::OnHost<typename Module::Device, Compute> host(module.stream(), {shard.model.data() + begin, {count}});
    const Tensor<Compute> narrow = host.values();
    values.resize(static_cast<std::size_t>(count));
    if (access == Access::read)
      std::transform(narrow.data(), narrow.data() + count, values.begin(), [](Compute x) { return float(x); });
    f(Tensor<float>(values.data(), {count}), shard.begin + begin);
    if (access == Access::read) continue;
    std::transform(values.begin(), values.end(), narrow.data(), [](float x) { return Compute(x); });
    host.write_back();
  }
}

namespace detail {

/// Returns which groups hold a parameter whose name matches. Throws InputError for a pattern that matches no parameter.
template <class Stack>
std::vector<bool> groups_with(const ShardedModule<Stack>& module, const std::vector<std::string>& names) {
  std::vector<bool> wanted(module.groups().size());
  for (const std::string& name : names) {
    bool found = false;
    for (std::size_t g = 0; g < wanted.size(); ++g)
      for (const Parameter& parameter : module.groups()[g].parameters())
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

/// Throws InputError on all ranks unless they wrote the same values, by their hash.
inline void require_same_writes(const comm::Ranks& ranks, std::uint64_t written, const std::string& group) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(ranks.size()));
  ranks.gather_bytes(std::as_bytes(std::span(&written, 1)), std::as_writable_bytes(std::span(all)),
                     {"written weights"});
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    require<InputError>(all[rank] == all[0], "with_full_parameters: rank ", rank, " wrote other values of ", group,
                        " than rank 0; each rank keeps its own part, so all must write the same");
}

}  // namespace detail

/// Calls f(parameter, tensor) on every rank for each parameter whose name matches one of `names` (with * and ?); the
/// tensor is the whole parameter in Main, in host memory. With Access::write, each rank takes its own part of the
/// tensor as the new weights; throws InputError on all ranks if they wrote different values. With a `source`, all take
/// what that rank wrote. Gathers one group at a time, in memory that is not part of the plan. Collective. Idea:
/// DeepSpeed's GatheredParameters and FSDP's summon_full_params.
template <class Stack, class F>
void with_full_parameters(ShardedModule<Stack>& module, const std::vector<std::string>& names, F f,
                          Access access = Access::read, int source = every_rank) {
  using Module = ShardedModule<Stack>;
  using Device = typename Module::Device;
  using Main = typename Module::Main;
  using Block = device::Block<Device>;
  const auto size = static_cast<std::int64_t>(sizeof(Main));
  require<InputError>(source >= every_rank && source < module.communicator().size(), "with_full_parameters: rank ",
                      source, " is to write the weights, and there are ", module.communicator().size());
  const std::vector<bool> wanted = detail::groups_with(module, names);
  for (std::size_t g = 0; g < wanted.size(); ++g) {
    if (!wanted[g]) continue;
    auto& group = module.groups()[g];
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
      f(group.parameters()[i], host.values());
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
    if (access == Access::read) continue;
    if (source == every_rank) detail::require_same_writes(module.communicator(), digest, module.names().groups[g]);
    for (const buffer::TensorRange& range : group.model_part().ranges()) {
      const std::int64_t at = layout.offsets[static_cast<std::size_t>(range.tensor)] + range.begin;
      const Tensor<const Main> written(data + at, {range.count});
      if (group.has_main())
        device::enqueue(module.stream(), device::Copy<Main>{.x = written, .y = group.main().range(range)});
      else
        device::enqueue(module.stream(), device::Copy<Main, typename Module::Compute>{
                                             .x = written, .y = group.model_part().range(range)});
    }
    module.synchronize();  // before the full weights are freed
  }
  if (access == Access::write)
    module.sync_model_weights([&](const std::string& name) { return matches_any(names, name); });
}

}  // namespace fsdp
