// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/buffer/layout_policies.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_text.hpp>

namespace fsdp::buffer {
namespace {

std::int64_t row_of(const Shape& shape) { return shape.numel() == 0 ? 1 : shape.numel() / shape[0]; }

/// Returns the least common multiple of all row lengths, if it is at most `bound`.
std::optional<std::int64_t> common_multiple(std::span<const Shape> shapes, std::int64_t bound) {
  std::int64_t multiple = 1;
  for (const Shape& shape : shapes) {
    multiple = std::lcm(multiple, row_of(shape));
    if (multiple > bound) return std::nullopt;
  }
  return multiple;
}

/// Lays out equal parts. Tensors of at least one chunk start or end at a multiple of the chunk. The rest of such a
/// tensor's last chunk is filled with the incomplete first chunk of a later tensor, which ends at a chunk border, and
/// with small tensors between the two, largest first. Source: Megatron-LM, GlobalLayout.
Layout equal_parts(std::span<const Shape> shapes, int ranks, std::int64_t chunk) {
  constexpr std::int64_t nowhere = -1;
  Layout layout;
  layout.shapes.assign(shapes.begin(), shapes.end());
  layout.offsets.assign(shapes.size(), nowhere);
  std::vector<std::size_t> small, large;
  for (std::size_t i = 0; i < shapes.size(); ++i) (shapes[i].numel() < chunk ? small : large).push_back(i);
  std::ranges::stable_sort(small, std::greater<>(), [&](std::size_t i) { return shapes[i].numel(); });
  const auto placed = [&](std::size_t i) { return layout.offsets[i] != nowhere; };
  std::int64_t end = 0;
  const auto fill = [&](std::int64_t begin, std::int64_t limit) {
    for (const std::size_t i : small) {
      const std::int64_t at = round_up(begin, row_of(shapes[i]));
      if (placed(i) || at + shapes[i].numel() > limit) continue;
      layout.offsets[i] = at;
      begin = at + shapes[i].numel();
    }
    return begin;
  };
  for (std::size_t next = 0; next < large.size(); ++next) {
    const std::size_t i = large[next];
    if (placed(i)) continue;
    layout.offsets[i] = round_up(end, chunk);
    end = layout.offsets[i] + shapes[i].numel();
    std::int64_t border = round_up(end, chunk);
    if (end == border) continue;
    const auto partner = std::find_if(large.begin() + static_cast<std::ptrdiff_t>(next) + 1, large.end(), [&](auto k) {
      const std::int64_t odd = shapes[k].numel() % chunk;
      return !placed(k) && odd > 0 && odd <= border - end;
    });
    std::int64_t limit = border;
    if (partner != large.end()) {
      limit = border - shapes[*partner].numel() % chunk;
      layout.offsets[*partner] = limit;
      border = limit + shapes[*partner].numel();
    }
    const std::int64_t filled = fill(end, limit);
    end = partner != large.end() ? border : filled;
  }
  for (const std::size_t i : small) {
    if (placed(i)) continue;
    layout.offsets[i] = round_up(end, row_of(shapes[i]));
    end = layout.offsets[i] + shapes[i].numel();
  }
  layout.full_size = round_up(end, chunk * ranks);
  cut_equally(layout, ranks);
  return layout;
}

/// Returns the last border between rows at or before an element.
std::int64_t row_border_before(const Layout& layout, std::int64_t element) {
  const auto after = std::upper_bound(layout.offsets.begin(), layout.offsets.end(), element);
  if (after == layout.offsets.begin()) return 0;
  const auto i = static_cast<std::size_t>(after - layout.offsets.begin()) - 1;
  const std::int64_t row = row_of(layout.shapes[i]);
  return layout.offsets[i] + (element - layout.offsets[i]) / row * row;
}

Layout parts_by_rows(std::span<const Shape> shapes, int ranks, std::int64_t alignment) {
  Layout layout = lay_out(shapes, alignment);
  Run run{.full = 0, .local = 0, .counts = {}};
  std::int64_t begin = 0, largest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t share = layout.full_size / ranks * (rank + 1) + layout.full_size % ranks * (rank + 1) / ranks;
    const std::int64_t end = rank + 1 == ranks ? layout.full_size : row_border_before(layout, share);
    run.counts.push_back(end - begin);
    largest = std::max(largest, end - begin);
    begin = end;
  }
  layout.local_sizes.assign(static_cast<std::size_t>(ranks), round_up(largest, element_alignment));
  layout.runs = {std::move(run)};
  return layout;
}

}  // namespace

void Rows::require_rows(std::span<const TensorGroup> groups) {
  for (const TensorGroup& group : groups)
    for (const TensorSpec& tensor : group.tensors)
      require<InputError>(tensor.shape.rank > 0, "rows: '", tensor.name,
                          "' has no axes, and so no rows; give it the shape {1}");
}

Layout Rows::of_group(std::span<const Shape> shapes, int ranks) {
  std::int64_t longest = 1;
  for (const Shape& shape : shapes) {
    require(shape.rank > 0, "rows: a tensor without axes has no rows; give it the shape {1}");
    longest = std::max(longest, row_of(shape));
  }
  const std::optional<std::int64_t> chunk = common_multiple(shapes, 2 * longest);
  return chunk ? equal_parts(shapes, ranks, *chunk) : parts_by_rows(shapes, ranks, 1);
}

Layout Rows::of_aligned_group(std::span<const Shape> shapes, int ranks) {
  return parts_by_rows(shapes, ranks, element_alignment);
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
