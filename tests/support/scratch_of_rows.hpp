// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether plans for the most rows hold for fewer, as far as the library's scratch goes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <fsdp/device/cpu.hpp>

namespace fsdp::test {

/// Whether oneDNN takes more scratch for some number of rows than for a larger one, as its AMX matmuls in bf16 do.
/// There a plan for the most rows is not the peak of all numbers of them.
inline bool fewer_rows_may_take_more() {
  constexpr std::int64_t hidden = 64, columns = 300, most_rows = 256;
  const device::Cpu::Planner planner(2);
  std::vector<bf16> memory(most_rows * columns);
  std::vector<float> sums(columns * hidden);
  std::int64_t input = 0, weight = 0;
  for (std::int64_t rows = 1; rows <= most_rows; ++rows) {
    const Tensor<bf16> x(memory.data(), {rows, hidden}), y(memory.data(), {rows, columns});
    const Tensor<bf16> w(memory.data(), {columns, hidden});
    const std::int64_t of_input = scratch(planner, device::Matmul<bf16>{.a = y, .b = w, .c = x});
    const std::int64_t of_weight =
        scratch(planner, device::Matmul<bf16, float>{
                             .a = device::transposed(y), .b = x, .c = Tensor<float>(sums.data(), {columns, hidden})});
    if (of_input < input || of_weight < weight) return true;
    input = std::max(input, of_input);
    weight = std::max(weight, of_weight);
  }
  return false;
}

}  // namespace fsdp::test
