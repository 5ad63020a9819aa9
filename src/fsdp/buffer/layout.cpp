// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/buffer/layout.hpp>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

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
  std::ranges::sort(held, {}, &TensorRange::local);
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

namespace {

/// Returns the number of elements to give to each rank, so that the ranks with the fewest so far reach a common level.
std::vector<std::int64_t> shares_of(std::int64_t elements, std::span<const std::int64_t> held) {
  std::vector<std::int64_t> sorted(held.begin(), held.end()), shares;
  std::ranges::sort(sorted);
  std::int64_t sum = elements, ranks = 0;
  do sum += sorted[static_cast<std::size_t>(ranks++)];
  while (ranks < std::ssize(sorted) && sorted[static_cast<std::size_t>(ranks)] <= (sum - 1) / ranks);
  const std::int64_t level = sum / ranks;
  std::int64_t rest = sum % ranks;
  for (const std::int64_t own : held) {
    shares.push_back(std::max<std::int64_t>(level - own, 0));
    if (own <= level && rest-- > 0) ++shares.back();
  }
  return shares;
}

/// Returns the position nearest to `element` at which `blocks` allow a cut: a multiple of a block, counted from the
/// tensor's first element, or the first element of a range; without blocks, any. 0 and `size` are such positions.
std::int64_t cut_near(std::int64_t element, std::span<const std::int64_t> blocks, std::span<const TensorRange> ranges,
                      std::int64_t size) {
  if (blocks.empty()) return element;
  const auto after = std::ranges::upper_bound(ranges, element, {}, &TensorRange::local);
  const std::int64_t next = after == ranges.end() ? size : after->local;
  if (after == ranges.begin()) return 2 * element < next ? 0 : next;
  const TensorRange& range = *std::prev(after);
  const std::int64_t block = blocks[static_cast<std::size_t>(range.tensor)];
  const std::int64_t first = range.local - range.begin % block;  // where the range's first block begins
  const std::int64_t last = (range.local + std::max<std::int64_t>(range.count - 1, 0) - first) / block;
  const std::int64_t number = std::min((element - first) / block, last);
  const std::int64_t begin = std::max(range.local, first + number * block);
  const std::int64_t end = number == last ? next : first + (number + 1) * block;
  return element - begin <= end - element ? begin : end;
}

void cut_equally_across(Layout& layout, int ranks) {
  if (ranks > 1)
    for (std::int64_t& size : layout.local_sizes) size = round_up(size, element_alignment * ranks);
  const bool equal = std::ranges::adjacent_find(layout.local_sizes, std::not_equal_to<>()) == layout.local_sizes.end();
  layout.across.assign(equal ? 1 : layout.local_sizes.size(), {});
  for (std::size_t shard = 0; shard < layout.across.size(); ++shard)
    layout.across[shard].counts.assign(static_cast<std::size_t>(ranks), layout.local_sizes[shard] / ranks);
}

}  // namespace

std::vector<std::int64_t> Layout::cut_to_level(std::span<const std::int64_t> held, std::span<const TensorRange> ranges,
                                               std::int64_t size) const {
  std::vector<std::int64_t> borders{0};
  std::int64_t wanted = 0;
  for (const std::int64_t share : shares_of(size, held))
    borders.push_back(cut_near(wanted += share, blocks, ranges, size));
  return borders;
}

void cut_across(std::span<Layout> layouts, std::span<const int> ranks) {
  std::vector<std::size_t> order(layouts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // As in Blocks, a rank's elements do not depend on the order of groups.
  std::ranges::sort(order, std::greater<>(), [&](std::size_t i) {
    return std::tie(layouts[i].full_size, layouts[i].offsets, layouts[i].blocks, layouts[i].local_sizes);
  });
  std::map<std::pair<std::size_t, int>, std::vector<std::vector<std::int64_t>>> held_on;  // by axes, shard and replica
  for (const std::size_t i : order) {
    Layout& layout = layouts[i];
    if (ranks[i] == 1 || layout.blocks.empty()) {
      cut_equally_across(layout, ranks[i]);
      continue;
    }
    const std::size_t shards = layout.local_sizes.size(), replicas = static_cast<std::size_t>(ranks[i]);
    auto& held = held_on[{shards, ranks[i]}];
    held.resize(shards, std::vector<std::int64_t>(replicas));
    layout.across.assign(shards, {});
    for (std::size_t shard = 0; shard < shards; ++shard) {
      const auto borders =
          layout.cut_to_level(held[shard], layout.ranges(static_cast<int>(shard)), layout.local_sizes[shard]);
      for (std::size_t replica = 0; replica < replicas; ++replica) {
        layout.across[shard].counts.push_back(borders[replica + 1] - borders[replica]);
        held[shard][replica] += layout.across[shard].counts.back();
      }
    }
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
  require(
      !borders.empty() && borders.front() == 0 && borders.back() == layout.full_size && std::ranges::is_sorted(borders),
      "cut_at: the table of ", borders.size(), " borders does not ascend from 0 to ", layout.full_size,
      ", the elements of the full buffer; give 0, the end of each rank's part, and ", layout.full_size, " last");
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
