// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/buffer/layout.hpp>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::buffer {

std::int64_t Run::begin(int rank) const { return std::accumulate(counts.begin(), counts.begin() + rank, full); }

namespace {

/// Throws InputError unless the tensors lie where a group that is `aligned` needs them.
void require_aligned(std::string_view policy, const TensorGroup& group, const Layout& layout) {
  const std::size_t count = group.aligned ? std::min(layout.offsets.size(), group.tensors.size()) : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool joins = i > 0 && group.tensors[i].joins_previous;
    const bool follows =
        !joins ||
        layout.offsets[i] == layout.offsets[i - 1] + round_up(group.tensors[i - 1].shape.numel(), element_alignment);
    require<InputError>(follows && layout.offsets[i] % element_alignment == 0, "layout ", policy, ": '",
                        group.tensors[i].name, "' starts at element ", layout.offsets[i],
                        "; steps in pieces need every tensor at a multiple of ", element_alignment,
                        " elements, and one that joins the previous tensor right behind it, since results would "
                        "depend on the layout; place it there where TensorGroup::aligned is set");
  }
}

/// Adds the parts of ranges of a buffer that lie in its elements [begin, end), which another buffer has from `local`
/// on.
void add_within(std::vector<TensorRange>& held, const std::vector<TensorRange>& ranges, std::int64_t begin,
                std::int64_t end, std::int64_t local) {
  for (const TensorRange& range : ranges) {
    const std::int64_t from = std::max(begin, range.local);
    const std::int64_t to = std::min(end, range.local + range.count);
    if (from < to)
      held.push_back({.tensor = range.tensor,
                      .begin = range.begin + from - range.local,
                      .count = to - from,
                      .local = local + from - begin});
  }
}

}  // namespace

std::vector<TensorRange> Layout::ranges(int rank) const {
  std::vector<TensorRange> held;
  const std::vector<TensorRange> all = whole();
  for (const Run& run : runs) {
    const std::int64_t begin = run.begin(rank);
    add_within(held, all, begin, begin + run.counts[static_cast<std::size_t>(rank)], run.local);
  }
  return held;
}

std::vector<TensorRange> Layout::whole() const {
  std::vector<TensorRange> all;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    all.push_back(
        {.tensor = static_cast<std::int64_t>(i), .begin = 0, .count = shapes[i].numel(), .local = offsets[i]});
  return all;
}

std::vector<TensorRange> Layout::ranges_across(int shard, int replica) const {
  const std::int64_t begin = across_of(shard).begin(replica);
  std::vector<TensorRange> held;
  add_within(held, ranges(shard), begin, begin + across_size(shard), 0);
  return held;
}

void Layout::cut_across(int ranks) {
  if (ranks > 1)
    for (std::int64_t& size : local_sizes) size = round_up(size, element_alignment * ranks);
  const bool alike =
      std::adjacent_find(local_sizes.begin(), local_sizes.end(), std::not_equal_to<>()) == local_sizes.end();
  across.clear();
  for (std::size_t rank = 0; rank < (alike ? 1 : local_sizes.size()); ++rank) {
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), local_sizes[rank] / ranks);
    across.push_back({.full = 0, .local = 0, .counts = counts});
  }
}

std::vector<Layout> group_by_group(std::span<const TensorGroup> groups, int parts,
                                   Layout (*of_group)(std::span<const Shape> shapes, int parts)) {
  std::vector<Layout> layouts;
  std::vector<Shape> shapes;
  for (const TensorGroup& group : groups) {
    shapes.clear();
    for (const TensorSpec& tensor : group.tensors) shapes.push_back(tensor.shape);
    layouts.push_back(of_group(shapes, parts));
  }
  return layouts;
}

std::vector<Layout> detail::build_layouts(std::string_view name, const void* policy, Build build,
                                          std::span<const TensorGroup> groups, std::span<const int> parts) {
  std::vector<Layout> layouts(groups.size());
  std::vector<int> distinct(parts.begin(), parts.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (const int ranks : distinct) {
    if (ranks == 0) continue;
    std::vector<TensorGroup> together;
    for (std::size_t i = 0; i < groups.size(); ++i)
      if (parts[i] == ranks) together.push_back(groups[i]);
    std::vector<Layout> built = build(policy, together, ranks);
    require(built.size() == together.size(), "layout ", name, ": gave ", built.size(), " layouts for ", together.size(),
            " groups");
    for (std::size_t i = 0; i < built.size(); ++i) require_aligned(name, together[i], built[i]);
    auto next = built.begin();
    for (std::size_t i = 0; i < groups.size(); ++i)
      if (parts[i] == ranks) layouts[i] = std::move(*next++);
  }
  return layouts;
}

Layout lay_out(std::span<const Shape> shapes, std::int64_t alignment) {
  Layout layout;
  layout.shapes.assign(shapes.begin(), shapes.end());
  for (const Shape& shape : shapes) {
    layout.offsets.push_back(layout.full_size);
    layout.full_size = checked_add(layout.full_size, round_up(shape.numel(), alignment));
  }
  return layout;
}

void cut_equally(Layout& layout, int parts) {
  layout.local_sizes.assign(static_cast<std::size_t>(parts), layout.full_size / parts);
  layout.runs = {{.full = 0, .local = 0, .counts = layout.local_sizes}};
}

Layout PerParameter::of_group(std::span<const Shape> shapes, int parts) {
  Layout layout = lay_out(shapes);
  std::int64_t local_size = 0;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::int64_t rows = shapes[i].rank == 0 ? 1 : shapes[i][0];
    const std::int64_t row = rows == 0 ? 0 : shapes[i].numel() / rows;
    const std::int64_t chunk = ceil_divide(rows, parts);
    Run run{.full = layout.offsets[i], .local = local_size, .counts = {}};
    for (int rank = 0; rank < parts; ++rank)
      run.counts.push_back(std::clamp<std::int64_t>(rows - rank * chunk, 0, chunk) * row);
    layout.runs.push_back(std::move(run));
    local_size += round_up(chunk * row, element_alignment);
  }
  layout.local_sizes.assign(static_cast<std::size_t>(parts), local_size);
  return layout;
}

Layout Flat::of_group(std::span<const Shape> shapes, int parts) {
  Layout layout = lay_out(shapes);
  layout.full_size = round_up(layout.full_size, element_alignment * parts);
  cut_equally(layout, parts);
  return layout;
}

}  // namespace fsdp::buffer
