// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/buffer/rows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

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
  std::stable_sort(small.begin(), small.end(),
                   [&](std::size_t a, std::size_t b) { return shapes[a].numel() > shapes[b].numel(); });
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
std::int64_t border_before(const Layout& layout, std::int64_t element) {
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
    const std::int64_t end = rank + 1 == ranks ? layout.full_size : border_before(layout, share);
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

}  // namespace fsdp::buffer
