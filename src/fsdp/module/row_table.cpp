// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/row_table.hpp>

namespace fsdp {

RowOwners::RowOwners(const buffer::Layout& layout, std::int64_t tensor, const std::string& name) {
  const Shape& shape = layout.shapes[static_cast<std::size_t>(tensor)];
  require<InputError>(shape.rank > 0 && shape.numel() > 0, "row table: '", name, "' has no rows");
  rows_ = shape[0];
  columns_ = shape.numel() / rows_;
  for (int rank = 0; rank < static_cast<int>(layout.local_sizes.size()); ++rank)
    for (const buffer::TensorRange& range : layout.ranges(rank)) {
      if (range.tensor != tensor || range.count == 0) continue;
      require<InputError>(range.begin % columns_ == 0 && range.count % columns_ == 0,
                          "row table: the layout cuts rows of ", "'", name,
                          "'; take one that does not, as FullyShard's or WithLayout<..., buffer::Rows>");
      ranges_.push_back({.first = range.begin / columns_, .place = {.rank = rank, .local = range.local}});
    }
  std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
}

RowOwners::RowOwners(const RowOwners&) = default;
RowOwners& RowOwners::operator=(const RowOwners&) = default;
RowOwners::~RowOwners() = default;

RowPlace RowOwners::place_of(std::int64_t row) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), row,
                                      [](std::int64_t id, const Range& range) { return id < range.first; });
  const Range& range = *std::prev(after);
  return {.rank = range.place.rank, .local = range.place.local + (row - range.first) * columns_};
}

RowRequests RowRequests::gathered(const comm::Ranks& ranks, std::span<const std::int64_t> mine, std::int64_t rows,
                                  const std::string& name) {
  const auto size = static_cast<std::size_t>(ranks.size());
  RowRequests all{.ids = {}, .counts = std::vector<std::int64_t>(size)};
  const std::int64_t count = std::ssize(mine);
  ranks.gather_bytes(std::as_bytes(std::span(&count, 1)), std::as_writable_bytes(std::span(all.counts)),
                     {"rows asked for"});
  const auto most = static_cast<std::size_t>(*std::max_element(all.counts.begin(), all.counts.end()));
  std::vector<std::int64_t> padded(most), gathered(most * size);
  std::copy(mine.begin(), mine.end(), padded.begin());
  if (most > 0)
    ranks.gather_bytes(std::as_bytes(std::span<const std::int64_t>(padded)),
                       std::as_writable_bytes(std::span(gathered)), {"rows asked for"});
  for (std::size_t rank = 0; rank < size; ++rank) {
    const std::span<const std::int64_t> own(gathered.data() + rank * most, static_cast<std::size_t>(all.counts[rank]));
    for (const std::int64_t id : own)
      require<InputError>(id >= 0 && id < rows, "row table: rank ", rank, " asks for row ", id, " of '", name,
                          "', which has ", rows);
    all.ids.insert(all.ids.end(), own.begin(), own.end());
  }
  return all;
}

}  // namespace fsdp
