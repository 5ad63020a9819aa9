// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/slots.hpp>

#include <algorithm>
#include <cstddef>

#include <tessera/fsdp/sharding/slot_assigner.hpp>

namespace fsdp::sharding {
namespace {

void enlarge(std::vector<std::int64_t>& sizes, int slot, std::int64_t elements) {
  if (slot < 0) return;
  const auto index = static_cast<std::size_t>(slot);
  if (index >= sizes.size()) sizes.resize(index + 1);
  sizes[index] = std::max(sizes[index], elements);
}

}  // namespace

Schedule assign_slots(const Schedule& schedule, const Problem& problem) { return with_slots(schedule, problem); }

SlotSizes slot_sizes(const Schedule& placed, const Problem& problem) {
  SlotSizes sizes;
  for (const Task& task : placed) {
    const GroupFacts* const group = works_on_unit(task.action) ? nullptr : &problem.group(task.index);
    if (has_weight_slot(task.action)) enlarge(sizes.weights, task.slot, group->weight_slot_elements());
    if (has_gradient_slot(task.action)) enlarge(sizes.gradients, task.slot, group->slot_elements);
  }
  return sizes;
}

SlotSizes largest(SlotSizes a, const SlotSizes& b) {
  const auto merge = [](std::vector<std::int64_t>& into, const std::vector<std::int64_t>& other) {
    for (std::size_t slot = 0; slot < other.size(); ++slot) enlarge(into, static_cast<int>(slot), other[slot]);
  };
  merge(a.weights, b.weights);
  merge(a.gradients, b.gradients);
  return a;
}

}  // namespace fsdp::sharding
