// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/matmul_peak.hpp>

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace fsdp::report {
namespace {

/// Of more numbers than are drawn, and of fewer.
TEST(MatmulPeak, IsOfMatricesWhoseNeighboursDiffer) {
  device::Ledger ledger;
  device::Cpu::Arena arena(ledger, 1 << 20);
  device::Cpu::Stream stream(arena, 1);
  for (const std::int64_t size : {7, 700}) {
    std::vector<float> memory(static_cast<std::size_t>(size * size), 7.0f);
    fill_with_noise<device::Cpu>(stream, Tensor<float>(memory.data(), {size, size}));
    for (std::size_t i = 1; i < memory.size(); ++i) {
      ASSERT_TRUE(memory[i] >= -0.5f && memory[i] < 0.5f) << i;
      ASSERT_NE(memory[i], memory[i - 1]) << i;
    }
    const std::set<float> first_row(memory.begin(), memory.begin() + size);
    EXPECT_EQ(first_row.size(), static_cast<std::size_t>(size));
    double sum = 0;
    for (const float value : memory) sum += static_cast<double>(value);
    EXPECT_NEAR(sum / static_cast<double>(memory.size()), 0, 0.2);
  }
}

}  // namespace
}  // namespace fsdp::report
