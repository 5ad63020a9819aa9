// SPDX-License-Identifier: Apache-2.0
// The operation suite finds the flaw of each flawed operation and accepts a correct one.
#include <tessera/fsdp/testing/operation.hpp>

#include <string>
#include <vector>

#include "failures.hpp"
#include "wrong_operations.hpp"

namespace fsdp::testing {
namespace {

using Check = void (*)(const std::vector<OperationCase>&);
constexpr std::string_view the_case = "flawed_sum, 5 rows of 300, and 3 between them";

template <SumFlaw flaw>
void expect_found(Check check, std::string_view asked, std::string_view found) {
  expect_sentence(failures_of([&] { check(FlawedSums<flaw>::cases()); }), asked, the_case, found);
}

INSTANTIATE_TYPED_TEST_SUITE_P(Right, OperationSuite, FlawedSums<SumFlaw::none>);

TEST(OperationKit, FindsWrongValues) {
  expect_found<SumFlaw::sums_wrongly>(check_operation_values, "values of its float64 reference",
                                      "tensor 1, an output [5]: element 0 is");
}

TEST(OperationKit, FindsWritesBeyondTheOutput) {
  expect_found<SumFlaw::writes_beyond>(check_operation_writes, "and nothing else",
                                       "tensor 1, an output [5]: element 1 behind its last was written, and is 0");
}

TEST(OperationKit, FindsWritesToInputs) {
  expect_found<SumFlaw::writes_its_input>(check_operation_writes, "no input",
                                          "tensor 0, an input [5, 300] has changed");
  expect_found<SumFlaw::writes_in_the_gap>(check_operation_writes, "no gap between rows",
                                           "the gap behind its row 0 was written");
}

TEST(OperationKit, FindsWritesBeyondTheScratch) {
  expect_found<SumFlaw::writes_past_scratch>(check_operation_writes, "its scratch",
                                             "scratch: element 1 behind its last");
}

TEST(OperationKit, FindsReadsOfUninitializedMemory) {
  expect_found<SumFlaw::reads_scratch>(check_operation_reads, "scratch before it has written", "element 0 is");
  expect_found<SumFlaw::reads_its_output>(check_operation_reads, "reads neither its outputs", "element 0 is");
}

TEST(OperationKit, FindsResultsThatDependOnTheNumberOfThreads) {
  expect_found<SumFlaw::sums_by_thread>(check_operation_teams, "the same bits on any number of threads",
                                        "tensor 1, an output [5]: element");
}

TEST(OperationKit, FindsUnlistedTensors) {
  expect_found<SumFlaw::lists_too_few>(check_operation_lists, "tensors() lists all",
                                       "tensor 1, an output [5] is not listed");
}

TEST(OperationKit, FindsScratchAndCostsThatDryRunsMiss) {
  expect_found<SumFlaw::plans_no_scratch>(check_operation_plans, "a dry run counts of an operation",
                                          "the scratch in bytes, a multiple of 64, is 0 instead of 64");
  expect_found<SumFlaw::costs_nothing>(check_operation_plans, "cost() says", "neither FLOPs nor bytes");
}

TEST(OperationKit, FindsWorkThatDependsOnHostStateAtRunTime) {
  set_by_the_host = 1;
  expect_found<SumFlaw::asks_its_thread>(check_operation_on_queues, "runs later, from a copy",
                                         "tensor 1, an output [5] holds other values");
}

TEST(OperationKit, FindsInvalidShapesThatAreAccepted) {
  expect_sentence(failures_of([] { check_operation_refuses(FlawedSums<SumFlaw::has_a_short_check>::refused()); }),
                  "check() refuses tensors that do not fit", "5 rows, and 4 sums", "no error was thrown");
}

}  // namespace
}  // namespace fsdp::testing
