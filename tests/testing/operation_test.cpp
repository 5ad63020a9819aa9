// SPDX-License-Identifier: Apache-2.0
// The operation suite finds the flaw of each flawed operation and accepts a correct one.
#include <tessera/fsdp/testing/operation.hpp>

#include <cstdint>
#include <numeric>
#include <string_view>
#include <tuple>
#include <vector>

#include <tessera/fsdp/device/cpu.hpp>

#include "failures.hpp"

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

/// y[r] = the sum of row r of x. `planned`: whether dry runs call `scratch`.
template <bool planned>
struct FlawedSum {
  static constexpr std::string_view name = "flawed_sum";

  SumFlaw flaw = SumFlaw::none;
  Tensor<const float> x = {};  // [R, C]
  Tensor<float> y = {};        // [R]

  auto tensors() const { return std::tuple(x, flaw == SumFlaw::lists_too_few ? Tensor<float>() : y); }
  device::Cost cost() const { return {.bytes = flaw == SumFlaw::costs_nothing ? 0 : x.bytes() + y.bytes()}; }
  void check() const {
    require(flaw == SumFlaw::has_a_short_check || x.rows() == y.numel(), "flawed_sum: ", x.rows(), " rows and ",
            y.numel(), " sums");
  }
};

/// The scratch: one double per row.
inline std::int64_t scratch(const device::Cpu::Planner&, const FlawedSum<true>& op) {
  return op.x.rows() * std::int64_t{sizeof(double)};
}
inline std::int64_t scratch(const device::Cpu::Stream&, const FlawedSum<false>& op) {
  return op.x.rows() * std::int64_t{sizeof(double)};
}

template <bool planned>
void run(device::Cpu::Stream& stream, const FlawedSum<planned>& op, device::Scratch memory) {
  const SumFlaw flaw = op.flaw;
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

/// Returns a sum with the flaw.
inline AnyOperation flawed_sum(SumFlaw flaw, Tensor<const float> x, Tensor<float> y) {
  if (flaw == SumFlaw::plans_no_scratch) return FlawedSum<false>{flaw, x, y};
  return FlawedSum<true>{flaw, x, y};
}

inline std::vector<OperationCase> cases_of(SumFlaw flaw) {
  return {{.words = "5 rows of 300, and 3 between them",
           .make =
               [flaw](OperationMemory& memory) {
                 const auto x = memory.input<float>({5, 300}, 1, 3);
                 return flawed_sum(flaw, x, memory.output<float>({5}));
               },
           .reference =
               [](const std::vector<Numbers>& before) {
                 Numbers sums;
                 for (auto row = before[0].begin(); row != before[0].end(); row += 300)
                   sums.push_back(std::accumulate(row, row + 300, 0.0));
                 return std::vector<Numbers>{sums};
               },
           .bound = 5}};
}
inline std::vector<OperationCase> refused_of(SumFlaw flaw) {
  return {{.words = "5 rows, and 4 sums", .make = [flaw](OperationMemory& memory) {
             const auto x = memory.input<float>({5, 3});
             return flawed_sum(flaw, x, memory.output<float>({4}));
           }}};
}
struct RightSums {
  static std::vector<OperationCase> cases() { return cases_of(SumFlaw::none); }
  static std::vector<OperationCase> refused() { return refused_of(SumFlaw::none); }
};

namespace {

using Check = void (*)(const std::vector<OperationCase>&);
constexpr std::string_view the_case = "flawed_sum, 5 rows of 300, and 3 between them";

void expect_found(SumFlaw flaw, Check check, std::string_view asked, std::string_view found) {
  expect_failure([&] { check(cases_of(flaw)); }, asked, the_case, found);
}

INSTANTIATE_TYPED_TEST_SUITE_P(Right, OperationSuite, RightSums);

TEST(OperationKit, FindsWrongValues) {
  expect_found(SumFlaw::sums_wrongly, check_operation_values, "values of its float64 reference",
               "tensor 1, an output [5]: element 0 is");
}

TEST(OperationKit, FindsWritesBeyondTheOutput) {
  expect_found(SumFlaw::writes_beyond, check_operation_writes, "and nothing else",
               "tensor 1, an output [5]: element 1 behind its last was written, and is 0");
}

TEST(OperationKit, FindsWritesToInputs) {
  expect_found(SumFlaw::writes_its_input, check_operation_writes, "no input",
               "tensor 0, an input [5, 300] has changed");
  expect_found(SumFlaw::writes_in_the_gap, check_operation_writes, "no gap between rows",
               "the gap behind its row 0 was written");
}

TEST(OperationKit, FindsWritesBeyondTheScratch) {
  expect_found(SumFlaw::writes_past_scratch, check_operation_writes, "its scratch",
               "scratch: element 1 behind its last");
}

TEST(OperationKit, FindsReadsOfUninitializedMemory) {
  expect_found(SumFlaw::reads_scratch, check_operation_reads, "scratch before it has written", "element 0 is");
  expect_found(SumFlaw::reads_its_output, check_operation_reads, "reads neither its outputs", "element 0 is");
}

TEST(OperationKit, FindsResultsThatDependOnTheNumberOfThreads) {
  expect_found(SumFlaw::sums_by_thread, check_operation_teams, "the same bits on any number of threads",
               "tensor 1, an output [5]: element");
}

TEST(OperationKit, FindsUnlistedTensors) {
  expect_found(SumFlaw::lists_too_few, check_operation_lists, "tensors() lists all",
               "tensor 1, an output [5] is not listed");
}

TEST(OperationKit, FindsScratchAndCostsThatDryRunsMiss) {
  expect_found(SumFlaw::plans_no_scratch, check_operation_plans, "a dry run counts of an operation",
               "the scratch in bytes, a multiple of 64, is 0 instead of 64");
  expect_found(SumFlaw::costs_nothing, check_operation_plans, "cost() says", "neither FLOPs nor bytes");
}

TEST(OperationKit, FindsWorkThatDependsOnHostStateAtRunTime) {
  set_by_the_host = 1;
  expect_found(SumFlaw::asks_its_thread, check_operation_on_queues, "runs later, from a copy",
               "tensor 1, an output [5] holds other values");
}

TEST(OperationKit, FindsInvalidShapesThatAreAccepted) {
  expect_failure([] { check_operation_refuses(refused_of(SumFlaw::has_a_short_check)); },
                 "check() refuses tensors that do not fit", "5 rows, and 4 sums", "no error was thrown");
}

}  // namespace
}  // namespace fsdp::testing
