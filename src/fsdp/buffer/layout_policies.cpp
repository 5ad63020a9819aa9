// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/buffer/layout_policies.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_text.hpp>

namespace fsdp::buffer {
namespace {

std::int64_t row_of(const TensorSpec& tensor) {
  return tensor.shape.rank == 0 || tensor.shape.numel() == 0 ? 1 : tensor.shape.numel() / tensor.shape[0];
}

template <class BlockOf>
std::vector<Layout> in_blocks(std::span<const TensorGroup> groups, int parts, const BlockOf& block_of) {
  std::vector<Layout> layouts;
  // Sizes of a group, and its index. Groups that compare equal may be exchanged, so that a rank's elements do not
  // depend on the order of groups.
  std::vector<std::pair<std::vector<std::int64_t>, std::size_t>> order;
  for (const TensorGroup& group : groups) {
    std::vector<Shape> shapes;
    for (const TensorSpec& tensor : group.tensors) shapes.push_back(tensor.shape);
    Layout& layout = layouts.emplace_back(lay_out(shapes));
    std::vector<std::int64_t>& sizes = order.emplace_back(std::vector{layout.full_size}, order.size()).first;
    for (const TensorSpec& tensor : group.tensors) {
      layout.blocks.push_back(block_of(tensor));
      sizes.insert(sizes.end(), {tensor.shape.numel(), layout.blocks.back()});
    }
  }
  std::ranges::sort(order, std::greater<>());
  std::vector<std::int64_t> held(static_cast<std::size_t>(parts));
  for (const auto& [sizes, group] : order) {
    Layout& layout = layouts[group];
    cut_at(layout, layout.cut_to_level(held, layout.whole(), layout.full_size));
    for (std::size_t rank = 0; rank < held.size(); ++rank) held[rank] += layout.local_sizes[rank];
  }
  return layouts;
}

}  // namespace

std::vector<Layout> Blocks::build(std::span<const TensorGroup> groups, int parts) const {
  require<InputError>(elements >= 0, "blocks: a block of ", elements,
                      " elements is requested; give at least 1, or 0 for rows");
  return in_blocks(groups, parts, [this](const TensorSpec& tensor) {
    return tensor.block > 0 ? tensor.block : elements > 0 ? elements : row_of(tensor);
  });
}

std::string Blocks::text() const { return elements == 0 ? std::string(name) : message(name, ":", elements); }

std::vector<Layout> Rows::build(std::span<const TensorGroup> groups, int parts) const {
  return in_blocks(groups, parts, row_of);
}

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
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::size_t i) { return std::pair(tensors[i].work, tensors[i].elements); });
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
  std::vector<std::int64_t> borders{0};
  for (int rank = 0; rank < parts; ++rank) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].owner != rank) continue;
      layout.offsets[i] = layout.full_size;
      const std::int64_t elements = round_up(group.tensors[i].shape.numel(), element_alignment);
      layout.full_size = checked_add(layout.full_size, elements);
    }
    borders.push_back(layout.full_size);
  }
  cut_at(layout, borders);
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

std::string Owned::text() const {
  return slack == usual_slack ? std::string(name) : message(name, ":slack=", exact_text(slack));
}

std::string AnyLayout::text() const {
  return std::visit([](const auto& policy) { return policy_text(policy); }, policy_);
}
std::vector<Layout> AnyLayout::build(std::span<const TensorGroup> groups, int parts) const {
  return std::visit([&](const auto& policy) { return policy.build(groups, parts); }, policy_);
}

}  // namespace fsdp::buffer
