// SPDX-License-Identifier: Apache-2.0
// The check of layouts that policies build.
#include <algorithm>
#include <iterator>
#include <ostream>
#include <set>
#include <utility>

#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::buffer {
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
    if (!layout_.blocks.empty()) check_blocks(tensors_in_order());
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

  /// Checks that each rank's part of a tensor begins at a multiple of the tensor's block.
  void check_blocks(const std::vector<std::size_t>& tensors) const {
    for (const Run& run : layout_.runs)
      for (std::int64_t border = run.full; const std::int64_t count : run.counts) {
        const auto after = std::ranges::upper_bound(tensors, border, {}, [&](std::size_t i) { return begin_of(i); });
        if (count > 0 && after != tensors.begin()) {
          const std::size_t tensor = *std::prev(after);
          const std::int64_t element = border - begin_of(tensor), block = layout_.blocks[tensor];
          require<InputError>(border >= end_of(tensor) || element % block == 0, "layout ", name_,
                              ": its layout of group ", number_, " over ", parts_, " ranks has a border at element ",
                              element, " of ", named(tensor), ", inside of a block of ", block,
                              " elements; place borders at multiples of the block, or leave Layout::blocks empty");
        }
        border += count;
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

}  // namespace fsdp::buffer
