// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/buffer/layout.hpp>

#include <algorithm>
#include <functional>
#include <numeric>
#include <ostream>
#include <set>
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

namespace {

/// Index and name of a tensor in a group, for messages.
struct NamedTensor {
  std::size_t index;
  std::string_view name;
  friend std::ostream& operator<<(std::ostream& out, const NamedTensor& tensor) {
    return out << "tensor " << tensor.index << " ('" << tensor.name << "')";
  }
};

/// Checks the layout that a policy built for a group, before anything is allocated: once for each module.
class LayoutCheck {
 public:
  LayoutCheck(std::string_view name, std::size_t number, const TensorGroup& group, int parts, const Layout& layout)
      : name_(name), number_(number), group_(group), parts_(static_cast<std::size_t>(parts)), layout_(layout) {}

  void run() const {
    check_sizes();
    check_runs();
    check_owners(tensors_in_order());
    check_alignment();
  }

 private:
  template <class... Parts>
  void require_layout(bool holds, const Parts&... found) const {
    require<InputError>(holds, "layout ", name_, ": its layout of group ", number_, " over ", parts_, " ranks ",
                        found...,
                        "; each element of a tensor belongs to one rank, and all that a rank holds lies in its buffer");
  }
  NamedTensor named(std::size_t tensor) const { return {tensor, group_.tensors[tensor].name}; }
  std::int64_t begin_of(std::size_t tensor) const { return layout_.offsets[tensor]; }
  std::int64_t end_of(std::size_t tensor) const { return layout_.offsets[tensor] + layout_.shapes[tensor].numel(); }

  void check_sizes() const {
    const std::size_t tensors = group_.tensors.size();
    require_layout(layout_.shapes.size() == tensors && layout_.offsets.size() == tensors, "has ", layout_.shapes.size(),
                   " shapes and ", layout_.offsets.size(), " offsets of ", tensors, " tensors");
    require_layout(layout_.blocks.empty() || (layout_.blocks.size() == tensors && std::ranges::min(layout_.blocks) > 0),
                   "has ", layout_.blocks.size(), " blocks of ", tensors, " tensors, or one without elements");
    // Same limit as for a tensor (check_shape), so that no sum overflows
    constexpr std::int64_t most = std::int64_t{1} << 56;
    require_layout(layout_.full_size <= most, "has a full buffer of ", layout_.full_size, " elements");
    require_layout(layout_.local_sizes.size() == parts_, "has ", layout_.local_sizes.size(), " local sizes");
    for (std::size_t rank = 0; rank < parts_; ++rank)
      require_layout(layout_.local_sizes[rank] >= 0 && layout_.local_sizes[rank] <= most, "gives rank ", rank, " ",
                     layout_.local_sizes[rank], " elements");
    for (std::size_t i = 0; i < tensors; ++i) {
      require_layout(layout_.shapes[i] == group_.tensors[i].shape, "gives ", named(i), " another shape");
      const std::int64_t elements = layout_.shapes[i].numel();
      require_layout(begin_of(i) >= 0 && begin_of(i) <= layout_.full_size - elements, "has the ", elements,
                     " elements of ", named(i), " at ", begin_of(i), " of a full buffer of ", layout_.full_size);
    }
  }

  /// Checks that each run is within the full buffer and within each rank's buffer.
  void check_runs() const {
    for (std::size_t i = 0; i < layout_.runs.size(); ++i) {
      const Run& run = layout_.runs[i];
      require_layout(run.counts.size() == parts_, "has ", run.counts.size(), " counts in run ", i);
      require_layout(run.full >= 0 && run.local >= 0, "has run ", i, " at ", run.full, ", and at ", run.local,
                     " of the ranks' buffers");
      std::int64_t left = layout_.full_size - run.full;
      for (std::size_t rank = 0; rank < parts_; ++rank) {
        const std::int64_t count = run.counts[rank], size = layout_.local_sizes[rank];
        require_layout(count >= 0 && count <= std::max(left, std::int64_t{0}), "gives rank ", rank, " ", count,
                       " elements of run ", i, ", where the full buffer has ", left, " left");
        require_layout(count == 0 || run.local <= size - count, "has ", count, " elements of run ", i, " at ",
                       run.local, " of rank ", rank, "'s buffer, which has ", size);
        left -= count;
      }
    }
  }

  /// Returns the tensors that have elements, in the order of their offsets. Throws InputError if they overlap.
  std::vector<std::size_t> tensors_in_order() const {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < layout_.shapes.size(); ++i)
      if (layout_.shapes[i].numel() > 0) order.push_back(i);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return begin_of(a) < begin_of(b); });
    for (std::size_t k = 1; k < order.size(); ++k)
      require_layout(begin_of(order[k]) >= end_of(order[k - 1]), "has ", named(order[k]), " at ", begin_of(order[k]),
                     ", inside of ", named(order[k - 1]));
    return order;
  }

  /// Checks that each element of a tensor is in one run, and that no two runs share memory of a rank.
  void check_owners(const std::vector<std::size_t>& tensors) const {
    std::vector<const Run*> runs;
    for (const Run& run : layout_.runs) runs.push_back(&run);
    std::sort(runs.begin(), runs.end(), [](auto a, auto b) { return a->full < b->full; });
    std::size_t next = 0;          // index in `tensors`
    std::int64_t at = 0, end = 0;  // first element of a tensor without an owner so far, and the end of the runs so far
    const auto begin_next = [&] { at = next < tensors.size() ? begin_of(tensors[next]) : layout_.full_size; };
    const auto require_owner = [&](std::int64_t begin) {
      if (next < tensors.size())
        require_layout(at >= begin, "gives element ", at - begin_of(tensors[next]), " of ", named(tensors[next]),
                       " to no rank");
    };
    begin_next();
    for (const Run* const run : runs) {
      const std::int64_t run_end = run->begin(static_cast<int>(parts_));
      if (run_end == run->full) continue;
      require_layout(run->full >= end, "gives element ", run->full, " of the full buffer to two ranks");
      require_owner(run->full);
      for (end = run_end; next < tensors.size() && end_of(tensors[next]) <= end; begin_next()) ++next;
      if (next < tensors.size()) at = std::max(at, end);
    }
    require_owner(layout_.full_size);

    std::sort(runs.begin(), runs.end(), [](auto a, auto b) { return a->local < b->local; });
    for (std::size_t rank = 0; rank < parts_; ++rank) {
      std::int64_t taken = 0;
      for (const Run* const run : runs) {
        const std::int64_t count = run->counts[rank];
        if (count == 0) continue;
        require_layout(run->local >= taken, "has two tensors at ", run->local, " of rank ", rank, "'s buffer");
        taken = run->local + count;
      }
    }
  }

  /// Checks that the tensors of an `aligned` group have the offsets that it requires.
  void check_alignment() const {
    for (std::size_t i = 0; group_.aligned && i < layout_.offsets.size(); ++i) {
      const bool joins = i > 0 && group_.tensors[i].joins_previous;
      const bool follows =
          !joins || begin_of(i) == begin_of(i - 1) + round_up(layout_.shapes[i - 1].numel(), element_alignment);
      require<InputError>(follows && begin_of(i) % element_alignment == 0, "layout ", name_, ": '",
                          group_.tensors[i].name, "' starts at element ", begin_of(i),
                          "; steps in pieces need every tensor at a multiple of ", element_alignment,
                          " elements, and one that joins the previous tensor right behind it, since results would "
                          "depend on the layout; place it there where TensorGroup::aligned is set");
    }
  }

  std::string_view name_;
  std::size_t number_;
  const TensorGroup& group_;
  std::size_t parts_;
  const Layout& layout_;
};

}  // namespace

std::vector<Layout> detail::build_layouts(std::string_view name, const void* policy, Build build,
                                          std::span<const TensorGroup> groups, std::span<const int> parts) {
  std::vector<Layout> layouts(groups.size());
  for (const int ranks : std::set<int>(parts.begin(), parts.end())) {
    if (ranks == 0) continue;
    std::vector<TensorGroup> together;
    for (std::size_t i = 0; i < groups.size(); ++i)
      if (parts[i] == ranks) together.push_back(groups[i]);
    std::vector<Layout> built = build(policy, together, ranks);
    require<InputError>(built.size() == together.size(), "layout ", name, ": gave ", built.size(), " layouts for ",
                        together.size(), " groups");
    auto next = built.begin();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (parts[i] != ranks) continue;
      LayoutCheck(name, i, groups[i], ranks, *next).run();
      layouts[i] = std::move(*next++);
    }
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
