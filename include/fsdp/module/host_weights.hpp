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
#include <type_traits>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/on_host.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/units.hpp>

namespace fsdp {

/// Whether the callback's writes become the weights, and what it is given: with `write` the weights' values, of which
/// it may leave some; with `replace` memory of any content, all of which it writes.
enum class Access : std::uint8_t { read, write, replace };

/// As a source: every rank writes, all the same values.
inline constexpr int every_rank = -1;

namespace detail {

/// Takes the floats of a part of a tensor, and the number of their first element.
using WithHostWeights = FunctionRef<void(Tensor<float>, std::int64_t begin)>;

/// with_host_weights of a tensor that starts at element `first`, in parts.
template <class Space, class T>
void with_parts_on_host(typename Space::Queue& queue, Tensor<T> tensor, std::int64_t first, Access access,
                        WithHostWeights f) {
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
/// the shard has any, else the model's weights, converted to float. Main weights in host memory come in one call, all
/// else in parts of at most 2^20 elements. Unless f only reads, what it writes becomes the weights. Main weights are
/// not rounded into the model's weights here: call ShardedModule::sync_model_weights.
template <class Stack>
void with_host_weights(ShardedModule<Stack>& module, const typename ShardedModule<Stack>::ParameterShard& shard,
                       Access access, detail::WithHostWeights f) {
  using Module = ShardedModule<Stack>;
  using MainSpace = typename Module::Group::MainSpace;
  if (!shard.has_main())
    detail::with_parts_on_host<typename Module::Device>(module.stream(), shard.model, shard.begin, access, f);
  else if constexpr (MainSpace::host_memory)
    f(device::OnHost<MainSpace, float>(module.stream(), shard.main).values(), shard.begin);
  else
    detail::with_parts_on_host<MainSpace>(module.stream(), shard.main, shard.begin, access, f);
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
/// tensor is the whole parameter in Main, in host memory. Unless f only reads, each rank takes its own part of the
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
  if (access != Access::read)
    module.sync_model_weights([&](const std::string& name) { return matches_any(names, name); });
}

}  // namespace fsdp
