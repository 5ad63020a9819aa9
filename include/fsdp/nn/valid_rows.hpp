// SPDX-License-Identifier: Apache-2.0
/// @file
/// The rows of a batch that count for the loss, as runs of neighbours: what a head computes on, and nothing else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <fsdp/core/tensor.hpp>

namespace fsdp::nn {

/// Rows [begin, end).
struct RowRun {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t rows() const { return end - begin; }
  friend bool operator==(const RowRun&, const RowRun&) = default;
};

using RowRuns = std::vector<RowRun>;

/// Rows whose target is not negative. On a device that only counts targets cannot be read: there all rows are.
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

/// The other rows of [0, rows).
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

/// The rows in tiles of `rows_per_tile`; the last may be shorter.
inline std::vector<RowRuns> cut_rows(const RowRuns& runs, std::int64_t rows_per_tile) {
  std::vector<RowRuns> tiles;
  std::int64_t room = 0;
  for (RowRun rest : runs)
    while (rest.rows() > 0) {
      if (room == 0) {
        tiles.emplace_back();
        room = rows_per_tile;
      }
      const std::int64_t taken = std::min(room, rest.rows());
      tiles.back().push_back({rest.begin, rest.begin + taken});
      rest.begin += taken;
      room -= taken;
    }
  return tiles;
}

inline std::int64_t count_rows(const RowRuns& runs) {
  std::int64_t rows = 0;
  for (const RowRun& run : runs) rows += run.rows();
  return rows;
}

}  // namespace fsdp::nn
