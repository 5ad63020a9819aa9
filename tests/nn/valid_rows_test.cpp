// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/nn/batch.hpp>

#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace fsdp::nn {
namespace {

TEST(RowTiles, CoverEveryRowInOrderAndOnlyTheLastTileIsShorter) {
  std::mt19937 random(1);
  const auto up_to = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(0, most)(random); };
  for (int round = 0; round < 1000; ++round) {
    RowRuns runs;
    std::vector<std::int64_t> expected;
    for (std::int64_t run = up_to(5), begin = up_to(2); run > 0; --run) {
      const std::int64_t end = begin + 1 + up_to(6);
      runs.push_back({begin, end});
      for (; begin < end; ++begin) expected.push_back(begin);
      begin += 1 + up_to(2);
    }
    const std::int64_t rows_per_tile = 1 + up_to(5);
    const RowTiles tiles(runs, rows_per_tile);
    std::vector<std::int64_t> found;
    for (std::size_t tile = 0; tile < tiles.size(); ++tile) {
      EXPECT_EQ(count_rows(tiles[tile]), tiles.rows(tile));
      if (tile + 1 < tiles.size()) {
        EXPECT_EQ(tiles.rows(tile), rows_per_tile);
      }
      for (const RowRun& run : tiles[tile]) {
        EXPECT_GT(run.rows(), 0);
        for (std::int64_t row = run.begin; row < run.end; ++row) found.push_back(row);
      }
    }
    EXPECT_EQ(found, expected) << "round " << round;
  }
}

}  // namespace
}  // namespace fsdp::nn
