// SPDX-License-Identifier: Apache-2.0
/// @file
/// The rows of a batch that have a target, as runs of consecutive rows. A head computes on these rows only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp::nn {

/// Rows [begin, end).
struct RowRun {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t rows() const { return end - begin; }
  friend bool operator==(const RowRun&, const RowRun&) = default;
};

using RowRuns = std::vector<RowRun>;

/// Returns the rows whose target is not negative. With `counts_only`, on a device whose memory cannot be read, returns
/// all rows.
inline RowRuns valid_rows(Tensor<const std::int32_t> targets, bool counts_only) {
  const std::int64_t rows = targets.numel();
  if (counts_only) return {{0, rows}};
  RowRuns runs;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] < 0) continue;
    if (runs.empty() || runs.back().end != row) runs.push_back({row, row});
    runs.back().end = row + 1;
  }
  return runs;
}

/// Returns the rows of [0, rows) that are in none of the runs.
inline RowRuns rows_between(const RowRuns& runs, std::int64_t rows) {
  RowRuns gaps;
  std::int64_t begin = 0;
  for (const RowRun& run : runs) {
    if (run.begin > begin) gaps.push_back({begin, run.begin});
    begin = run.end;
  }
  if (begin < rows) gaps.push_back({begin, rows});
  return gaps;
}

inline std::int64_t count_rows(const RowRuns& runs) {
  std::int64_t rows = 0;
  for (const RowRun& run : runs) rows += run.rows();
  return rows;
}

/// The rows of all runs in tiles of `rows_per_tile`; the last tile may be shorter. Tiles are computed lazily, since a
/// dry run skips most of them.
class RowTiles {
 public:
  RowTiles(RowRuns runs, std::int64_t rows_per_tile) : runs_(std::move(runs)), rows_per_tile_(rows_per_tile) {
    for (const RowRun& run : runs_) {
      before_.push_back(rows_);
      rows_ += run.rows();
    }
  }

  std::size_t size() const { return rows_ == 0 ? 0 : static_cast<std::size_t>(ceil_divide(rows_, rows_per_tile_)); }
  std::int64_t rows(std::size_t tile) const { return std::min(rows_per_tile_, rows_ - begin(tile)); }
  RowRuns operator[](std::size_t tile) const {
    const std::int64_t from = begin(tile), to = from + rows(tile);
    RowRuns found;
    auto run = static_cast<std::size_t>(std::upper_bound(before_.begin(), before_.end(), from) - before_.begin()) - 1;
    for (; run < runs_.size() && before_[run] < to; ++run) {
      const std::int64_t shift = runs_[run].begin - before_[run];
      found.push_back({std::max(from + shift, runs_[run].begin), std::min(to + shift, runs_[run].end)});
    }
    return found;
  }

 private:
  std::int64_t begin(std::size_t tile) const { return static_cast<std::int64_t>(tile) * rows_per_tile_; }

  RowRuns runs_;                      ///< no run is empty
  std::vector<std::int64_t> before_;  ///< number of rows in the runs before each run
  std::int64_t rows_per_tile_, rows_ = 0;
};

}  // namespace fsdp::nn
