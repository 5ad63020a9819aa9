// SPDX-License-Identifier: Apache-2.0
/// @file
/// The layout that cuts no tensor: each lies whole on one rank, its owner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <fsdp/buffer/layout.hpp>
#include <fsdp/core/checked.hpp>
#include <fsdp/core/error.hpp>

namespace fsdp::buffer {

/// Assigns the tensors of all groups to ranks, so that each rank steps whole tensors of about equal work. In a group's
/// full buffer the tensors of rank 0 come first, then those of rank 1, and so on: one gather and one reduction serve
/// the group, with counts that differ by rank. A rank's buffer holds its own tensors and nothing else.
///
/// Tensors that join each other have one owner, where they stand side by side: in what follows they are one tensor.
/// Tensors are taken in the order of falling work. Each goes to the rank with the least work so far among those that it
/// would not bring above mean * (1 + slack) elements, where `mean` is all elements / ranks; where there is none, and
/// where a tensor has no work, it goes to the rank with the fewest elements.
///
/// Bound: no rank holds more than mean + max(slack * mean, largest tensor) elements, tensors rounded up to 64. A rank
/// that is taken as the one with the fewest elements has at most `mean` before. Where the limit on elements never
/// binds, as with work = elements, the most work of a rank is at most 4/3 of what is possible. Source: longest
/// processing time first, Graham 1969.
struct Owned {
  static constexpr std::string_view name = "owned";
  static constexpr bool keeps_tensors_whole = true;
  double slack = 0.25;  ///< part of the mean that a rank's elements may exceed it by, for the sake of equal work

  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const {
    const std::vector<Assigned> tensors = owned_by(groups, parts);
    std::span<const Assigned> rest(tensors);
    std::vector<Layout> layouts;
    for (const TensorGroup& group : groups) {
      layouts.push_back(of_group(group, rest.first(group.tensors.size()), parts));
      rest = rest.subspan(group.tensors.size());
    }
    return layouts;
  }

 private:
  struct Assigned {
    std::int64_t elements = 0;  ///< with padding; of a tensor that others join with theirs
    std::int64_t work = 0;
    std::size_t first = 0;  ///< the tensor that it joins, itself where it joins none
    int owner = 0;
  };
  struct Load {
    std::int64_t elements = 0;
    std::int64_t work = 0;
  };

  /// All tensors with their owners, group after group.
  std::vector<Assigned> owned_by(std::span<const TensorGroup> groups, int parts) const {
    require(slack >= 0, "owned: the slack ", slack, " is negative; give a part of the mean, such as 0.25");
    std::vector<Assigned> tensors;
    std::int64_t all = 0;
    for (const TensorGroup& group : groups)
      for (const TensorSpec& spec : group.tensors) {
        require(spec.work >= 0, "owned: a tensor has the work ", spec.work, "; work is at least 0");
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
    const auto limit = static_cast<std::int64_t>(static_cast<double>(all) / parts * (1 + slack));
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

  static int owner_of(const Assigned& tensor, const std::vector<Load>& loads, std::int64_t limit) {
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

  static Layout of_group(const TensorGroup& group, std::span<const Assigned> tensors, int parts) {
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
};

static_assert(LayoutPolicy<Owned> && keeps_tensors_whole<Owned>);

}  // namespace fsdp::buffer
