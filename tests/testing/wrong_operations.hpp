// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sums of rows as operations with one flaw each.
#pragma once

#include <cstdint>
#include <numeric>
#include <string_view>
#include <tuple>
#include <vector>

#include <range/v3/view/chunk.hpp>
#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/testing/operation_cases.hpp>

namespace fsdp::testing {

enum class SumFlaw {
  none,
  sums_wrongly,         ///< omits the last column
  writes_beyond,        ///< writes one element more than there are rows
  writes_its_input,     ///< scales its input in place
  writes_in_the_gap,    ///< writes into the gap after a row of its input
  writes_past_scratch,  ///< writes one byte beyond the requested scratch
  reads_scratch,        ///< accumulates into uninitialised scratch
  reads_its_output,     ///< adds the old output times zero
  sums_by_thread,       ///< makes one float partial sum per thread
  lists_too_few,        ///< does not list its output
  plans_no_scratch,     ///< requests scratch in a function that dry runs do not call
  costs_nothing,
  has_a_short_check,  ///< compares no shapes
  asks_its_thread,    ///< reads a thread-local value of the enqueuing thread
};

inline thread_local float set_by_the_host = 0;

/// y[r] = the sum of row r of x.
template <SumFlaw flaw>
struct FlawedSum {
  static constexpr std::string_view name = "flawed_sum";

  Tensor<const float> x = {};  // [R, C]
  Tensor<float> y = {};        // [R]

  auto tensors() const {
    if constexpr (flaw == SumFlaw::lists_too_few)
      return std::tie(x);
    else
      return std::tie(x, y);
  }
  device::Cost cost() const { return {.bytes = flaw == SumFlaw::costs_nothing ? 0 : x.bytes() + y.bytes()}; }
  void check() const {
    require(flaw == SumFlaw::has_a_short_check || x.rows() == y.numel(), "flawed_sum: ", x.rows(), " rows and ",
            y.numel(), " sums");
  }
};

/// The scratch: one double per row.
template <SumFlaw flaw>
requires(flaw != SumFlaw::plans_no_scratch) std::int64_t
    scratch(const device::Cpu::Planner&, const FlawedSum<flaw>& op) {
  return op.x.rows() * std::int64_t{sizeof(double)};
}
template <SumFlaw flaw>
requires(flaw == SumFlaw::plans_no_scratch) std::int64_t
    scratch(const device::Cpu::Stream&, const FlawedSum<flaw>& op) {
  return op.x.rows() * std::int64_t{sizeof(double)};
}

template <SumFlaw flaw>
void run(device::Cpu::Stream& stream, const FlawedSum<flaw>& op, device::Scratch memory) {
  const auto sums = memory.as<double>({op.x.rows()});
  const std::int64_t columns = op.x.columns() - (flaw == SumFlaw::sums_wrongly ? 1 : 0);
  float* const input = const_cast<float*>(op.x.data());
  for (std::int64_t row = 0; row < op.x.rows(); ++row) {
    if (flaw != SumFlaw::reads_scratch) sums[row] = 0;
    std::vector<float> parts(static_cast<std::size_t>(stream.threads()));
    for (std::int64_t i = 0; i < columns; ++i) {
      sums[row] += static_cast<double>(op.x.row(row)[i]);
      parts[static_cast<std::size_t>(i % stream.threads())] += op.x.row(row)[i];
    }
    if (flaw == SumFlaw::reads_its_output) sums[row] += 0 * static_cast<double>(op.y[row]);
    op.y[row] = static_cast<float>(sums[row]);
    if (flaw == SumFlaw::asks_its_thread) op.y[row] += set_by_the_host;
    if (flaw != SumFlaw::sums_by_thread) continue;
    op.y[row] = 0;
    for (const float part : parts) op.y[row] += part;
  }
  if (flaw == SumFlaw::writes_beyond) op.y.data()[op.y.numel()] = 0;
  if (flaw == SumFlaw::writes_its_input) input[0] *= 2;
  if (flaw == SumFlaw::writes_in_the_gap) input[op.x.columns()] = 0;
  if (flaw == SumFlaw::writes_past_scratch) memory.data[memory.bytes] = std::byte{1};
}

template <SumFlaw flaw>
struct FlawedSums {
  static std::vector<OperationCase> cases() {
    return {{.words = "5 rows of 300, and 3 between them",
             .make =
                 [](OperationMemory& memory) {
                   return FlawedSum<flaw>{.x = memory.input<float>({5, 300}, 1, 3), .y = memory.output<float>({5})};
                 },
             .reference =
                 [](const std::vector<Numbers>& before) {
                   Numbers sums(5);
                   for (const auto& [sum, row] : ranges::views::zip(sums, ranges::views::chunk(before[0], 300)))
                     sum = std::accumulate(row.begin(), row.end(), sum);
                   return std::vector<Numbers>{sums};
                 },
             .bound = 5}};
  }
  static std::vector<OperationCase> refused() {
    return {{.words = "5 rows, and 4 sums", .make = [](OperationMemory& memory) {
               return FlawedSum<flaw>{.x = memory.input<float>({5, 3}), .y = memory.output<float>({4})};
             }}};
  }
};

}  // namespace fsdp::testing
