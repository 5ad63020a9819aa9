// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/units.hpp>

#include <cstddef>
#include <utility>

#include <tessera/fsdp/core/hash.hpp>

namespace fsdp {

GroupTensors::GroupTensors(std::vector<Parameter> parameters, const sharding::GroupFacts& facts, buffer::Layout layout,
                           buffer::Layout kept)
    : parameters_(std::move(parameters)),
      layout_(std::make_unique<const buffer::Layout>(std::move(layout))),
      kept_layout_(std::make_unique<const buffer::Layout>(std::move(kept))),
      facts_(facts),
      written_(std::make_unique<bool[]>(parameters_.size())) {}

GroupTensors::GroupTensors(GroupTensors&&) noexcept = default;
GroupTensors::~GroupTensors() = default;

std::int64_t GroupTensors::kept_size_of(int rank) const {
  const int keepers = static_cast<int>(kept_layout_->local_sizes.size());
  return keepers == 0 ? 0 : kept_layout_->local_size(rank % keepers);
}

std::uint64_t GroupTensors::digest_of_layouts() const {
  std::uint64_t hash = hash_seed;
  const auto add = [&](const std::vector<std::int64_t>& numbers) {
    hash = hashed(hash, std::ssize(numbers));
    for (const std::int64_t number : numbers) hash = hashed(hash, number);
  };
  for (const buffer::Layout* const layout : {layout_.get(), kept_layout_.get()}) {
    add(layout->offsets);
    add(layout->local_sizes);
    for (const buffer::Run& run : layout->runs) {
      add({run.full, run.local});
      add(run.counts);
    }
  }
  return hash;
}

std::array<std::int64_t, 3> elements_of(GroupList groups, int rank) {
  std::array<std::int64_t, 3> elements{};
  for (const GroupTensors* const group : groups) {
    const int shards = static_cast<int>(group->layout().local_sizes.size());
    const std::int64_t here = group->layout().local_size(rank % shards);
    const bool across = group->facts().across == sharding::Across::shard;
    const std::int64_t stepped = across ? group->layout().across_size(rank % shards, rank / shards) : here;
    elements[0] += group->facts().trainable ? stepped : 0;
    elements[1] += here;
    elements[2] += group->kept_size_of(rank);
  }
  return elements;
}

Reference first_cut(GroupList groups, const StepWork& step) {
  if (step.whole == nullptr) return {-1, -1};
  int index = -1;
  for (const GroupTensors* const group : groups) {
    ++index;
    if (!group->facts().trainable) continue;
    if (group->facts().resident && group->facts().across != sharding::Across::shard) continue;
    const bool across = group->facts().across == sharding::Across::shard;
    const buffer::Layout& layout = group->layout();
    for (int shard = 0; shard < std::ssize(layout.local_sizes); ++shard) {
      const int replicas = across ? static_cast<int>(layout.across_of(shard).counts.size()) : 1;
      for (int replica = 0; replica < replicas; ++replica)
        for (const buffer::TensorRange& range : across ? layout.ranges_across(shard, replica) : layout.ranges(shard)) {
          const Parameter& parameter = group->parameters()[static_cast<std::size_t>(range.tensor)];
          if (step.takes_whole(parameter) && range.count != parameter.shape.numel())
            return {index, static_cast<int>(range.tensor)};
        }
    }
  }
  return {-1, -1};
}

std::vector<buffer::TensorGroup> specs_of(std::span<const GroupedParameters> groups, const StepWork& step,
                                          bool aligned) {
  std::vector<buffer::TensorGroup> specs;
  for (const GroupedParameters& group : groups) {
    buffer::TensorGroup& spec = specs.emplace_back();
    spec.aligned = aligned;
    for (const Parameter& parameter : group.parameters)
      spec.tensors.push_back(
          {.shape = parameter.shape,
           .work = group.frozen ? 0 : step(parameter),
           .joins_previous = parameter.joins_previous,
           .name = parameter.name,
           .block = !group.frozen && step.takes_whole(parameter) ? parameter.shape.numel() : parameter.block});
  }
  return specs;
}

}  // namespace fsdp
