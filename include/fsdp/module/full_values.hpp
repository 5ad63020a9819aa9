// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collects whole gradients, and other values that ranks store per shard, for inspection.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/on_host.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/units.hpp>

namespace fsdp {
namespace detail {

/// Returns the indices in the module of the shards of one parameter that this rank owns.
template <class Stack>
std::vector<std::size_t> owned_shards(const ShardedModule<Stack>& module, const Parameter& parameter) {
  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < module.shards().size(); ++i) {
    const auto& shard = module.shards()[i];
    if (shard.owned && shard.parameter == &parameter && shard.count() > 0) list.push_back(i);
  }
  return list;
}

}  // namespace detail

/// Calls f(parameter, tensor) on every rank with the whole tensor, in host memory, of each trained parameter whose name
/// matches one of `names`. `values(i)` returns this rank's values for shard i, which are in memory space `Space`. One
/// parameter is collected at a time, in memory that is not part of the plan. Collective.
template <class Space, class Stack, class Values, class F>
void with_full_values(ShardedModule<Stack>& module, const std::vector<std::string>& names, Values values, F f) {
  auto& communicator = module.communicator();
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const std::vector<bool> wanted = detail::groups_with(module, names);
  module.synchronize();
  for (std::size_t g = 0; g < wanted.size(); ++g) {
    auto& group = module.groups()[g];
    if (!wanted[g] || !group.facts().trainable) continue;
    for (const Parameter& parameter : group.parameters()) {
      if (!matches_any(names, parameter.name)) continue;
      const std::vector<std::size_t> mine = detail::owned_shards(module, parameter);
      std::vector<float> whole(static_cast<std::size_t>(parameter.shape.numel()));
      std::vector<std::array<std::int64_t, 2>> ranges(ranks);  // begin and element count of each rank's next shard
      for (std::size_t next = 0;; ++next) {
        std::array<std::int64_t, 2> own{};
        if (next < mine.size()) {
          const auto& shard = module.shards()[mine[next]];
          own = {shard.begin, shard.count()};
          device::OnHost<Space, const float> host(module.stream(), values(mine[next]));
          std::copy_n(host.values().data(), own[1], whole.data() + own[0]);
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
      f(parameter, Tensor<const float>(whole.data(), parameter.shape));
    }
  }
}

/// The same for gradients at rest: reduced over ranks, and scaled by the loss scale if there is one. Call it between a
/// training pass and the step. Throws LogicError if no training pass was finished since the last step.
template <class Stack, class F>
void with_full_gradients(ShardedModule<Stack>& module, const std::vector<std::string>& names, F f) {
  require(module.progress().state == PassProgress::State::idle && module.progress().has_gradients,
          "with_full_gradients: no training pass was finished since the last step");
  const auto part = [&](std::size_t i) -> Tensor<const float> { return module.shards()[i].gradient; };
  with_full_values<typename Stack::Device>(module, names, part, f);
}

}  // namespace fsdp
