// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/units.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
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

std::vector<buffer::TensorRange> GroupTensors::stepped_ranges(int rank) const {
  const int shards = static_cast<int>(layout_->local_sizes.size());
  if (facts_.across != sharding::Across::shard) return layout_->ranges(rank % shards);
  return layout_->ranges_across(rank % shards, rank / shards);
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
  if (step.block == nullptr) return {-1, -1};
  int index = -1;
  for (const GroupTensors* const group : groups) {
    ++index;
    if (!group->facts().trainable) continue;
    const bool across = group->facts().across == sharding::Across::shard;
    if (group->facts().resident && !across) continue;
    std::vector<std::int64_t> blocks;  // [parameters]
    for (const Parameter& parameter : group->parameters()) blocks.push_back(step.block_of(parameter));
    if (std::ranges::max(blocks) <= 1) continue;
    const auto shards = std::ssize(group->layout().local_sizes);
    const auto replicas = across ? std::ssize(group->layout().across_of(0).counts) : 1;
    for (int rank = 0; rank < shards * replicas; ++rank)
      for (const buffer::TensorRange& range : group->stepped_ranges(rank)) {
        // Each element is in one range, so that a range that ends inside of a block is followed by one that begins
        // there.
        const std::int64_t block = blocks[static_cast<std::size_t>(range.tensor)];
        if (block > 0 && range.begin % block != 0) return {index, static_cast<int>(range.tensor)};
      }
  }
  return {-1, -1};
}

std::int64_t StepWork::block_of(const Parameter& parameter) const {
  const std::int64_t elements = block == nullptr ? 0 : block(parameter);
  require<InputError>(elements >= 0, "the optimizer states a block of ", elements, " elements for '", parameter.name,
                      "'; state at least 1, or 0 if it steps any range");
  return std::min(elements, parameter.shape.numel());
}

namespace {

/// Returns the smallest block that consists of whole blocks of the parameter and of whole blocks of its optimizer; the
/// whole parameter if that would be larger.
std::int64_t common_block(const Parameter& parameter, std::int64_t of_optimizer) {
  const std::int64_t own = parameter.block, elements = parameter.shape.numel();
  if (own == 0 || of_optimizer == 0) return std::max(own, of_optimizer);
  const std::int64_t times = own / std::gcd(own, of_optimizer);
  return times > elements / of_optimizer ? elements : times * of_optimizer;
}

}  // namespace

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
           .block = group.frozen ? parameter.block : common_block(parameter, step.block_of(parameter))});
  }
  return specs;
}

}  // namespace fsdp
