// SPDX-License-Identifier: Apache-2.0
// Plans for thousands of ranks: the bytes of each rank match closed formulas.
#include <algorithm>
#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include <support/any_strategy.hpp>
#include <support/errors.hpp>
#include <support/stacks/llama_training.hpp>
#include <support/stacks/planned_llama.hpp>
#include <tessera/comm/threads.hpp>

namespace fsdp::plan {
namespace {

constexpr int world = 4096;

/// 8.03 billion parameters.
LlamaConfig eight_billion() {
  return {.vocab_size = 128256,
          .hidden_size = 4096,
          .intermediate_size = 14336,
          .layers = 32,
          .heads = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .tied = false,
          .max_position_embeddings = 8192};
}

std::int64_t up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

using Shapes = std::vector<std::pair<std::int64_t, std::int64_t>>;  // rows, length of a row
const Shapes embedding = {{128256, 4096}};
const Shapes block = {{4096, 1}, {4096, 4096},  {1024, 4096},  {1024, 4096}, {4096, 4096},
                      {4096, 1}, {14336, 4096}, {14336, 4096}, {4096, 14336}};
const Shapes head = {{4096, 1}, {128256, 4096}};

std::int64_t whole(const Shapes& shapes) {
  std::int64_t sum = 0;
  for (const auto& [rows, row] : shapes) sum += up(rows * row, 64);
  return sum;
}
/// Elements of a rank's shard over n ranks: in chunks of rows as FSDP2 (by_rows), or in equal parts of one range
/// (flat).
std::int64_t by_rows(const Shapes& shapes, std::int64_t n) {
  std::int64_t sum = 0;
  for (const auto& [rows, row] : shapes) sum += up((rows + n - 1) / n * row, 64);
  return sum;
}
std::int64_t flat(const Shapes& shapes, std::int64_t n) { return up(whole(shapes), 64 * n) / n; }

template <class PerUnit>
std::int64_t model_sum(PerUnit per_unit) {
  return per_unit(embedding) + 32 * per_unit(block) + per_unit(head);
}

/// Bytes per element: at rest weights 4 + 2, gradients 4, moments 8; slots of gathered weights 2, of gradients 4. The
/// fields count elements.
struct Expected {
  std::int64_t main = 0, model = 0, gradient = 0, gathered = 0, gradient_slots = 0;
};

const auto tiles = tiling::RunTimeTiling::tokens(2048);

void expect_plan(const char* strategy, const Expected& expected) {
  SCOPED_TRACE(strategy);
  double fastest = 1e9;
  Plan found;
  for (int round = 0; round < 3; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    found = test::dry_run({.config = eight_billion(), .strategy = test::any_strategy(strategy), .tiling = tiles},
                          {.ranks = world, .rank = 0, .shape = {.size = {.sequence_length = 8192}}});
    fastest = std::min(fastest, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  using device::MemoryKind;
  const auto bytes = [&](MemoryKind kind) { return found.bytes[static_cast<std::size_t>(kind)]; };
  EXPECT_EQ(bytes(MemoryKind::weights), 4 * expected.main + 2 * expected.model);
  EXPECT_EQ(bytes(MemoryKind::gradients), 4 * expected.gradient + 4 * expected.gradient_slots);
  EXPECT_EQ(bytes(MemoryKind::optimizer), 8 * expected.main);
  EXPECT_EQ(bytes(MemoryKind::gathered), 2 * expected.gathered);
#if defined(NDEBUG)
  EXPECT_LT(fastest, 1.0) << "seconds";
#endif
}

TEST(Plan, For8BParametersOnThousandsOfRanksMatchesTheFormulas) {
  const std::int64_t two_slots = whole(embedding) + whole(head);  // these two use different slots
  const std::int64_t largest = whole(head);
  const std::int64_t rows = model_sum([](const Shapes& unit) { return by_rows(unit, world); });
  const std::int64_t part = model_sum([](const Shapes& unit) { return flat(unit, world); });
  const std::int64_t everything = model_sum([](const Shapes& unit) { return up(whole(unit), 64 * world); });
  expect_plan("fsdp2", {rows, rows, rows, two_slots, largest});
  const std::int64_t head_slot = up(whole(head), 64 * world);
  expect_plan("zero3", {part, part, part, up(whole(embedding), 64 * world) + head_slot, head_slot});
  expect_plan("zero1", {part, part, part, everything, head_slot});
  expect_plan("replicated", {everything, everything, everything, 0, 0});
  // In hybrid strategies, the optimizer state is replicated or sharded over 512 groups; shards are padded to be reduced
  // in equal parts.
  const std::int64_t padded = model_sum([](const Shapes& unit) { return up(by_rows(unit, 8), 64 * 512); });
  EXPECT_GE(padded, model_sum([](const Shapes& unit) { return by_rows(unit, 8); }));
  expect_plan("hybrid:8", {padded, padded, padded, two_slots, largest});
  expect_plan("hybrid:8:full", {padded / 512, padded, padded, two_slots, largest});
}

TEST(Plan, EachOffloadedInputReducesDeviceMemory) {
  const auto plan_of = [](double share) {
    return test::dry_run(
        {.config = eight_billion(), .units = {.recompute = true, .offload_inputs = share}, .tiling = tiles},
        {.ranks = 8, .rank = 0, .shape = {.size = {.sequence_length = 8192}}});
  };
  const std::int64_t input = 8192 * 4096 * 2;  // [T, H] in bf16
  const Plan kept = plan_of(0);
  EXPECT_EQ(kept.offloaded_bytes, 0);
  for (const std::int64_t count : {1, 2, 8, 30, 31}) {
    SCOPED_TRACE(count);
    const Plan far = plan_of(static_cast<double>(count) / 32);
    EXPECT_EQ(far.offloaded_bytes, count * input);
    EXPECT_EQ(kept.peak_bytes() - far.peak_bytes(), count * input);
  }
  EXPECT_EQ(plan_of(1).peak_bytes(), plan_of(31 / 32.0).peak_bytes()) << "the last block's input stays";
}

/// The library's Meta instances of a Llama can verify, whatever the strategy.
TEST(DryRun, RefusesToVerifyUnderAStrategyWithoutPieces) {
  comm::Threads<>::run(1, {}, [](comm::Threads<>& communicator) {
    EXPECT_INPUT_ERROR(
        test::LlamaTraining(communicator, {.sequence_length = 16, .verifies = true}),
        "verification: each rank computes a piece of another one again, and this strategy does not cut steps into "
        "pieces; take Reproducible");
  });
}

}  // namespace
}  // namespace fsdp::plan
