// SPDX-License-Identifier: Apache-2.0
/// `enqueue` and the templates over all operations, with a user-defined operation.
#include <tessera/fsdp/device/operation.hpp>

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/testing/operation.hpp>
#include <tessera/fsdp/testing/queued/queued_cpu.hpp>

#include "foreign_operation.hpp"
#include "trace.hpp"

namespace fsdp::device {
namespace {

using namespace testing;
using elsewhere::AddMean;

static_assert(check_operation<AddMean>() && check_operation<Matmul<bf16, float>>() && check_operation<DecideStep>());
static_assert(check_operation<LargestMagnitude>() && check_operation<FixedPointSquares>());
static_assert(Has<Cpu, FixedPointSquares> && Has<Meta, LargestMagnitude> && Has<testing::QueuedCpu, FixedPointSquares>);
static_assert(Has<Cpu, AddMean> && Has<Meta, AddMean> && Has<testing::QueuedCpu, AddMean> && !Has<Cuda, AddMean>);
static_assert(!Operation<int> && !Has<Cpu, int>);

constexpr std::array<float, 6> input = {1, 2, 6, -1, 0, 4};
constexpr std::array<float, 6> expected = {4, 5, 9, 0, 1, 5};

std::string what_is_thrown(auto&& call) {
  try {
    call();
  } catch (const LogicError& error) {
    return error.what();
  }
  return "nothing";
}

/// Cases of one row, of rows that do not fill vector registers, and of more rows than threads.
struct ForeignCases {
  static std::vector<OperationCase> cases() { return {of(1, 1, 0), of(3, 7, 2), of(37, 96, 0)}; }
  static std::vector<OperationCase> refused() {
    return {{.words = "of another shape", .make = [](OperationMemory& memory) {
               return AddMean{.x = memory.input<float>({2, 3}), .y = memory.output<float>({3, 2})};
             }}};
  }

 private:
  static OperationCase of(std::int64_t rows, std::int64_t columns, std::int64_t gap) {
    return {.words = message(rows, " rows of ", columns, ", ", gap, " between them"),
            .make =
                [=](OperationMemory& memory) {
                  return AddMean{.x = memory.input<float>({rows, columns}, 3, gap),
                                 .y = memory.output<float>({rows, columns}, gap)};
                },
            .reference =
                [width = static_cast<std::size_t>(columns)](const std::vector<Numbers>& before) {
                  Numbers y = before[0];
                  for (std::size_t row = 0; row < y.size(); row += width) {
                    double mean = 0;
                    for (std::size_t i = 0; i < width; ++i) mean += before[0][row + i];
                    for (std::size_t i = 0; i < width; ++i) y[row + i] += mean / static_cast<double>(width);
                  }
                  return std::vector<Numbers>{y};
                }};
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Foreign, OperationSuite, ForeignCases);

TEST(ForeignOperation, IsPlannedForMoreThreadsThanTheMachineHas) {
  for (const int threads : {1, 2, 48}) {
    const auto meta = reference::trace<Meta>(Meta::Arena::unbounded(), threads, [](Meta, auto& arena, auto& stream) {
      const auto x = arena.template allocate<float>(Meta::Arena::End::low, {37, 96});
      const auto y = arena.template allocate<float>(Meta::Arena::End::low, {37, 96});
      enqueue(stream, AddMean{.x = x, .y = y});
    });
    EXPECT_EQ(meta.elementwise_bytes, 2 * 37 * 96 * 4);
    EXPECT_EQ(meta.peak_scratch, round_up((37 + threads) * 8, alignment));
  }
}

TEST(ForeignOperation, IsOrderedOnTheQueuedDevice) {
  using testing::QueuedCpu;
  Ledger ledger;
  const Block<QueuedCpu> block(ledger, MemoryKind::activations, 256);
  const Tensor<float> x(reinterpret_cast<float*>(block.data()), {2, 3});
  const Tensor<float> y(reinterpret_cast<float*>(block.data() + 128), {2, 3});
  QueuedCpu::Arena arena(ledger, 0);
  QueuedCpu::Stream stream(arena, 1);
  QueuedCpu::Queue other("other");
  QueuedCpu::move(stream, reinterpret_cast<const std::byte*>(input.data()), reinterpret_cast<std::byte*>(x.data()),
                  x.bytes());
  enqueue(stream, AddMean{.x = x, .y = y});
  EXPECT_EQ(stream.counters.elementwise_bytes, 48);

  std::array<float, 6> found{};
  const auto fetch = [&] {
    QueuedCpu::move(other, reinterpret_cast<const std::byte*>(y.data()), reinterpret_cast<std::byte*>(found.data()),
                    y.bytes());
    other.synchronize();
  };
  other.wait(stream.record());
  fetch();
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(QueuedCpu::take_races().empty());

  enqueue(stream, AddMean{.x = x, .y = y});
  fetch();  // without waiting for the operation
  stream.synchronize();
  const auto races = QueuedCpu::take_races();
  ASSERT_EQ(races.size(), 1u);
  EXPECT_NE(races.front().find("add_mean"), std::string::npos) << races.front();
}

TEST(Operation, ErrorOfAFailedCheckShowsTheOperationAndItsTensors) {
  const Tensor<float> x(nullptr, {2, 3}), y(nullptr, {3, 2});
  Meta::Arena arena = Meta::Arena::unbounded();
  Meta::Stream stream(arena, 1);
  EXPECT_EQ(what_is_thrown([&] { enqueue(stream, AddMean{.x = x, .y = y}); }),
            "add_mean: x and y must be one matrix; enqueued as add_mean(f32 [2, 3] -> f32 [3, 2])");
  EXPECT_EQ(stream.counters.elementwise_bytes, 0);
}

TEST(Operation, HasATextForAnyTypeOfItsTensors) {
  const Tensor<float> sums(nullptr, {4});
  EXPECT_EQ(text(RotaryTable{.table = sums}), "rotary_table(i32 [0] -> f32 [4])");
  EXPECT_EQ(
      text(Matmul<bf16, float>{
          .a = Tensor<bf16>(nullptr, {2, 3}), .b = transposed(Tensor<bf16>(nullptr, {5, 3})), .c = {nullptr, {2, 5}}}),
      "matmul(bf16 [2, 3], bf16 [5, 3] -> f32 [2, 5])");
  EXPECT_EQ(text(DecideStep{.inputs = {nullptr, {1}}, .sums = {nullptr, {3, 2}}, .step = {nullptr, {1}}}),
            message("decide_step(", sizeof(StepInputs), "-byte records [1], f64 [3, 2], i64 [0], i64 [0] -> ",
                    sizeof(StepDecision), "-byte records [1])"));
  EXPECT_EQ(text(FixedPointSquares{.x = sums, .largest = {nullptr, {3}}, .sum = {nullptr, {2}}}),
            "fixed_point_squares(f32 [4], i64 [3] -> i64 [2])");
}

TEST(Scratch, RefusesToAllocateMoreThanRequested) {
  std::array<std::byte, 64> memory{};
  const Scratch scratch{.data = memory.data(), .bytes = 64};
  EXPECT_EQ(scratch.as<double>({8}).numel(), 8);
  EXPECT_THROW(scratch.as<double>({9}), LogicError);
  EXPECT_THROW(scratch.as<float>({1}, 64), LogicError);
}

}  // namespace
}  // namespace fsdp::device
