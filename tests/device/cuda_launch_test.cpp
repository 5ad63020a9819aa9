// SPDX-License-Identifier: Apache-2.0
/// Launch shapes: the elements that each thread of a grid would access, counted on the host.
#include "src/fsdp/device/cuda/launch.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace fsdp::device::cuda {
namespace {

constexpr std::int64_t beyond_int = (std::int64_t{1} << 31) + 5;

const std::byte* address(std::int64_t bytes) { return reinterpret_cast<const std::byte*>(0x7000'0000 + bytes); }

void expect_within_limits(const Grid& grid) {
  EXPECT_GE(grid.x, 1u);
  EXPECT_GE(grid.y, 1u);
  EXPECT_LE(grid.x, 0x7fffffffu);
  EXPECT_LE(grid.y, 65535u);
  EXPECT_TRUE(grid.threads % warp == 0 && grid.threads >= warp && grid.threads <= 1024);
}

/// The number of items of thread `thread` of `threads` in a grid-stride loop over [0, count).
std::int64_t taken(std::int64_t thread, std::int64_t threads, std::int64_t count) {
  return thread >= count ? 0 : (count - thread - 1) / threads + 1;
}

TEST(CudaLaunch, CoversEveryElementOnceAtAnyAlignment) {
  for (const std::int64_t columns : {1, 7, 8, 31, 33, 1023, 4096})
    for (const std::int64_t width : {4, 8})
      for (std::int64_t offset = 0; offset < width; ++offset) {
        const Cut cut = cut_for_vectors(columns, width, {{address(2 * offset), 2}});
        std::vector<int> touched(static_cast<std::size_t>(columns));
        for (std::int64_t i = 0; i < cut.items(); ++i) {
          const Elements elements = cut.item(i);
          if (elements.count > 1) {
            EXPECT_EQ((offset + elements.first) % width, 0);
            EXPECT_EQ(elements.count, width);
          }
          for (std::int64_t e = 0; e < elements.count; ++e) ++touched.at(static_cast<std::size_t>(elements.first + e));
        }
        EXPECT_EQ(touched, std::vector<int>(touched.size(), 1)) << columns << " from " << offset;
        if (columns >= 2 * width) {
          EXPECT_GE(cut.vectors, columns / width - 1);
        }
      }
}

TEST(CudaLaunch, VectorAccessesNeedACommonAlignmentOfAllRows) {
  const auto vectors = [](std::int64_t a, std::int64_t b, std::int64_t stride) {
    return cut_for_vectors(64, 8, {{address(2 * a), 2, 64}, {address(4 * b), 4, stride}}).vectors;
  };
  EXPECT_EQ(vectors(0, 0, 64), 8);
  EXPECT_EQ(vectors(3, 3, 72), 7);  // 5 leading elements in both operands
  EXPECT_EQ(vectors(3, 2, 72), 0);  // the operands are never aligned at the same element
  EXPECT_EQ(vectors(0, 0, 65), 0);  // the second row is misaligned
  EXPECT_EQ(vectors(0, 0, 0), 8);   // there is no second row
  EXPECT_EQ(cut_for_vectors(64, 8, {{address(1), 2}}).vectors, 0);  // not even single elements are aligned
  EXPECT_EQ(cut_singly(64).items(), 64);
}

TEST(CudaLaunch, AGridWithinLimitsProcessesEveryItemOnce) {
  for (const std::int64_t columns :
       {std::int64_t{1}, std::int64_t{31}, std::int64_t{33}, std::int64_t{1023}, beyond_int})
    for (const bool wide : {false, true}) {
      const Cut cut = wide ? cut_for_vectors(columns, 8, {{address(2), 2}}) : cut_singly(columns);
      const Grid grid = grid_of_elements(1, cut.items());
      expect_within_limits(grid);
      const std::int64_t threads = std::int64_t{grid.x} * grid.threads;
      std::int64_t items = 0;
      for (std::int64_t thread = 0; thread < threads; ++thread) items += taken(thread, threads, cut.items());
      EXPECT_EQ(items, cut.items());
      EXPECT_LT(std::int64_t{grid.x} - 1, (cut.items() + grid.threads - 1) / grid.threads);  // no idle block
      const Elements last = cut.item(cut.items() - 1),
                     last_vector = cut.item(std::max<std::int64_t>(cut.vectors, 1) - 1);
      EXPECT_EQ(std::max(last.first + last.count, last_vector.first + last_vector.count), columns);
      EXPECT_EQ(cut.items(), wide && columns > 8 ? columns - 7 * cut.vectors : columns);
      if (wide && columns == beyond_int) {
        EXPECT_EQ(cut.head, 7);
        EXPECT_EQ(cut.vectors, (columns - 7) / 8);
        EXPECT_EQ(cut.item(cut.vectors - 1).first, 7 + (cut.vectors - 1) * 8);
      }
    }
}

TEST(CudaLaunch, ManyRowsShareAGridWithinLimits) {
  for (const std::int64_t rows :
       {std::int64_t{1}, std::int64_t{31}, std::int64_t{65535}, std::int64_t{65536}, beyond_int})
    for (const std::int64_t columns : {std::int64_t{1}, std::int64_t{33}, std::int64_t{4096}, beyond_int}) {
      const Grid elements = grid_of_elements(rows, columns), whole = grid_of_rows(rows, columns);
      expect_within_limits(elements);
      expect_within_limits(whole);
      EXPECT_LE(elements.y, rows);
      EXPECT_LE(whole.x, rows);
      if (rows <= most_blocks) {
        EXPECT_EQ(whole.x, rows);
      }
    }
  EXPECT_EQ(grid_of_rows(3, 33).threads, 64u);
  expect_within_limits(grid_of_elements(0, 0));
}

/// Zipf's law: token n has a frequency of about 1 / (n + 1), because tokenizers number tokens by frequency.
TEST(CudaLaunch, FrequentVocabularyRowsHaveDifferentOwners) {
  for (const std::int64_t vocabulary : {1, 300, 1024, 1500, 50257, 128256}) {
    std::vector<double> load(static_cast<std::size_t>(row_owners));
    for (std::int64_t row = 0; row < vocabulary; ++row) {
      ASSERT_LT(owner_of_row(row), std::min(vocabulary, row_owners));  // a block of the grid
      load[owner_of_row(row)] += 1.0 / static_cast<double>(row + 1);
    }
    const double most = *std::max_element(load.begin(), load.end());
    EXPECT_LT(most, 1.01) << vocabulary;  // the most frequent token alone has a load of 1
  }
}

}  // namespace
}  // namespace fsdp::device::cuda
