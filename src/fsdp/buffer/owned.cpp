// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/buffer/owned.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::buffer {
namespace {

struct Assigned {
  /// Number of elements with padding; for a first tensor, including the tensors that join it.
  std::int64_t elements = 0;
  std::int64_t work = 0;
  std::size_t first = 0;  ///< index of the tensor that it joins, or its own index
  int owner = 0;
};
struct Load {
  std::int64_t elements = 0;
  std::int64_t work = 0;
};

int owner_of(const Assigned& tensor, const std::vector<Load>& loads, std::int64_t limit) {
  constexpr int nobody = -1;
  int least_work = nobody, fewest_elements = 0;
  for (int rank = 0; rank < static_cast<int>(loads.size()); ++rank) {
    const auto of = [&](int other) { return loads[static_cast<std::size_t>(other)]; };
    if (of(rank).elements < of(fewest_elements).elements) fewest_elements = rank;
    if (of(rank).elements + tensor.elements > limit) continue;
    if (least_work == nobody || of(rank).work < of(least_work).work ||
        (of(rank).work == of(least_work).work && of(rank).elements < of(least_work).elements))
      least_work = rank;
  }
  return tensor.work == 0 || least_work == nobody ? fewest_elements : least_work;
}

/// Returns all tensors with their owners, group by group.
std::vector<Assigned> owned_by(std::span<const TensorGroup> groups, int parts, double slack) {
  require<InputError>(slack >= 0, "owned: the slack ", slack, " is negative; give a part of the mean, such as 0.25");
  std::vector<Assigned> tensors;
  std::int64_t all = 0;
  for (const TensorGroup& group : groups)
    for (const TensorSpec& spec : group.tensors) {
      require<InputError>(spec.work >= 0, "owned: '", spec.name, "' has the work ", spec.work,
                          ", which its optimizer states; work is at least 0");
      const std::int64_t elements = round_up(spec.shape.numel(), element_alignment);
      const bool joins = spec.joins_previous && &spec != group.tensors.data();
      const std::size_t first = joins ? tensors.back().first : tensors.size();
      tensors.push_back({.first = first});
      tensors[first].elements = checked_add(tensors[first].elements, elements);
      tensors[first].work = checked_add(tensors[first].work, spec.work);
      all = checked_add(all, elements);
    }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].first == i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return tensors[a].work != tensors[b].work ? tensors[a].work > tensors[b].work
                                              : tensors[a].elements > tensors[b].elements;
  });
  const double most = static_cast<double>(all);  // upper bound, so that any slack is valid, however large
  const auto limit = static_cast<std::int64_t>(std::min(most, most / parts * (1 + slack)));
  std::vector<Load> loads(static_cast<std::size_t>(parts));
  for (const std::size_t i : order) {
    tensors[i].owner = owner_of(tensors[i], loads, limit);
    Load& load = loads[static_cast<std::size_t>(tensors[i].owner)];
    load.elements += tensors[i].elements;
    load.work = checked_add(load.work, tensors[i].work);
  }
  for (Assigned& tensor : tensors) tensor.owner = tensors[tensor.first].owner;
  return tensors;
}

Layout of_group(const TensorGroup& group, std::span<const Assigned> tensors, int parts) {
  Layout layout;
  for (const TensorSpec& spec : group.tensors) layout.shapes.push_back(spec.shape);
  layout.offsets.resize(tensors.size());
  for (int rank = 0; rank < parts; ++rank) {
    const std::int64_t begin = layout.full_size;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].owner != rank) continue;
      layout.offsets[i] = layout.full_size;
      const std::int64_t elements = round_up(group.tensors[i].shape.numel(), element_alignment);
      layout.full_size = checked_add(layout.full_size, elements);
    }
    layout.local_sizes.push_back(layout.full_size - begin);
  }
  layout.runs = {{.full = 0, .local = 0, .counts = layout.local_sizes}};
  return layout;
}

}  // namespace

std::vector<Layout> Owned::build(std::span<const TensorGroup> groups, int parts) const {
  const std::vector<Assigned> tensors = owned_by(groups, parts, slack);
  std::span<const Assigned> rest(tensors);
  std::vector<Layout> layouts;
  for (const TensorGroup& group : groups) {
    layouts.push_back(of_group(group, rest.first(group.tensors.size()), parts));
    rest = rest.subspan(group.tensors.size());
  }
  return layouts;
}

}  // namespace fsdp::buffer
