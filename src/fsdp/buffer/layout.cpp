// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/buffer/layout.hpp>

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include <tessera/fsdp/core/checked.hpp>

namespace fsdp::buffer {

std::int64_t Run::begin(int rank) const { return std::accumulate(counts.begin(), counts.begin() + rank, full); }

namespace {

/// Adds the parts of a buffer's ranges that are within elements [begin, end) of the buffer. Another buffer stores these
/// elements from offset `local` on.
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
  add_within(held, ranges(shard), begin, begin + across_size(shard, replica), 0);
  return held;
}

void Layout::cut_across(int ranks) {
  const bool by_blocks = ranks > 1 && !blocks.empty();
  if (ranks > 1 && !by_blocks)
    for (std::int64_t& size : local_sizes) size = round_up(size, element_alignment * ranks);
  const bool alike = !by_blocks && std::ranges::adjacent_find(local_sizes, std::not_equal_to<>()) == local_sizes.end();
  across.clear();
  for (int shard = 0; shard < (alike ? 1 : static_cast<int>(local_sizes.size())); ++shard) {
    const std::vector<TensorRange> held = by_blocks ? ranges(shard) : std::vector<TensorRange>();
    Run& run = across.emplace_back();
    for (std::int64_t rank = 0, begin = 0; rank < ranks; ++rank) {
      const std::int64_t equal = local_size(shard) / ranks * (rank + 1);
      const std::int64_t end = rank + 1 == ranks ? local_size(shard)
                               : by_blocks       ? cut_near(equal, held, local_size(shard))
                                                 : equal;
      run.counts.push_back(end - std::exchange(begin, end));
    }
  }
}

std::int64_t Layout::cut_near(std::int64_t element, std::span<const TensorRange> ranges, std::int64_t size) const {
  const auto after = std::ranges::upper_bound(ranges, element, {}, &TensorRange::local);
  const std::int64_t next = after == ranges.end() ? size : after->local;
  if (after == ranges.begin()) return 2 * element < next ? 0 : next;
  const TensorRange& range = *std::prev(after);
  const std::int64_t block = blocks[static_cast<std::size_t>(range.tensor)];
  const std::int64_t last = (range.count - 1) / block, number = std::min((element - range.local) / block, last);
  const std::int64_t begin = range.local + number * block, end = number == last ? next : begin + block;
  return element - begin <= end - element ? begin : end;
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

Layout lay_out(std::span<const Shape> shapes) {
  Layout layout;
  layout.shapes.assign(shapes.begin(), shapes.end());
  for (const Shape& shape : shapes) {
    layout.offsets.push_back(layout.full_size);
    layout.full_size = checked_add(layout.full_size, round_up(shape.numel(), element_alignment));
  }
  return layout;
}

void cut_equally(Layout& layout, int parts) {
  layout.local_sizes.assign(static_cast<std::size_t>(parts), layout.full_size / parts);
  layout.runs = {{.full = 0, .local = 0, .counts = layout.local_sizes}};
}

void cut_at(Layout& layout, std::span<const std::int64_t> borders) {
  Run run;
  layout.local_sizes.clear();
  for (std::size_t rank = 0; rank + 1 < borders.size(); ++rank) {
    run.counts.push_back(borders[rank + 1] - borders[rank]);
    layout.local_sizes.push_back(round_up(run.counts.back(), element_alignment));
  }
  layout.runs = {std::move(run)};
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
