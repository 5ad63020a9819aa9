// SPDX-License-Identifier: Apache-2.0
// Several ranks share each sequence: the same training as with separate sequences, with a fraction of the activations.
#include <chrono>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>
#include <range/v3/view/enumerate.hpp>

#include <support/small_llama.hpp>
#include <support/temporary_folder.hpp>
#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::test {
namespace {

using Names = std::vector<std::string>;

/// Two blocks with 12 heads, which 2, 3 or 4 ranks can share.
LlamaConfig twelve_heads(std::int64_t kv_heads) {
  return {.vocab_size = 37,
          .hidden_size = 19,
          .intermediate_size = 29,
          .layers = 2,
          .heads = 12,
          .kv_heads = kv_heads,
          .head_dim = 4};
}

/// Twelve windows of 7 tokens, which is odd, for any number of ranks. Some have ignored targets; with `packed`, they
/// contain several documents.
std::vector<Window> odd_windows(bool packed) {
  std::vector<Window> windows = some_windows(12, 7, 37);
  for (const auto& [i, window] : ranges::views::enumerate(windows)) {
    if (i % 3 == 0) window.targets[i % 7] = -1;
    if (packed) window.documents = i % 2 == 0 ? std::vector<std::int64_t>{3, 4} : std::vector<std::int64_t>{1, 5, 1};
  }
  return windows;
}

struct Shared {
  int ranks = 2;
  int per_sequence = 2;
  std::int64_t kv_heads = 4;
  int micro_batches = 1;
  int parts = 1;
  bool packed = false;
};

RunOptions options_of(const Shared& shared) {
  const int groups = shared.ranks / shared.per_sequence;
  return {.config = twelve_heads(shared.kv_heads),
          .sequence_length = 7,
          .most_sequences = most_dealt(12, groups, shared.micro_batches),
          .ranks = shared.ranks,
          .ranks_per_sequence = shared.per_sequence,
          .middle_parts = shared.parts,
          .micro_batches = shared.micro_batches,
          .lr = 3e-3,
          .batch = deal(odd_windows(shared.packed)),
          .evaluated = odd_windows(false)};
}
/// The same training in which each rank has separate sequences.
RunOptions whole(RunOptions options) {
  options.most_sequences = most_dealt(12, options.ranks, options.micro_batches);
  options.ranks_per_sequence = options.middle_parts = 1;
  return options;
}
std::string run_time(std::string_view strategy) { return std::string(strategy) + "/run-time"; }

void expect_follows(const RunResults& found, const RunResults& expected) {
  EXPECT_LE(largest_relative(found.losses, expected.losses), 1e-6);
  EXPECT_LE(largest_relative(found.norms, expected.norms), 1e-5);
  EXPECT_LE(largest_relative(found.gradients, expected.gradients), 1e-5);
  EXPECT_LE(largest_relative(found.weights, expected.weights), 1e-5);
  EXPECT_NEAR(found.last_evaluation, expected.last_evaluation, 1e-6 * expected.last_evaluation);
  for (const Memory& memory : found.memory) {
    EXPECT_EQ(memory.used, memory.planned);
    EXPECT_EQ(memory.used_activations, memory.planned_activations);
  }
}

TEST(Sequence, TrainsLikeWholeSequencesForAnyNumberOfHeads) {
  for (const int per_sequence : sampled({2, 3, 4}))
    for (const std::int64_t kv_heads : sampled({1, 3, 12})) {
      SCOPED_TRACE(message(per_sequence, " ranks, ", kv_heads, " key-value heads"));
      const RunOptions options =
          options_of({.ranks = per_sequence, .per_sequence = per_sequence, .kv_heads = kv_heads, .packed = true});
      const RunResults expected = run(run_time("fsdp2"), whole(options));
      EXPECT_LT(expected.losses.back(), 0.97 * expected.losses.front());
      expect_follows(run(run_time("fsdp2"), options), expected);
    }
}

/// A point of the test grid.
struct Point {
  std::string_view strategy;
  bool recompute;
  int micro_batches;
  int parts;
  tiling::RunTimeTiling tiling;
};

TEST(Sequence, TrainsLikeWholeSequencesWithAnyStrategyTilingAndParts) {
  const auto tiles = tiling::RunTimeTiling::tiles(3);
  const std::vector<Point> few = {{"zero3:persist=20:prefetch=2", true, 1, 3, tiles},
                                  {"hybrid:2", true, 2, 3, {}},
                                  {"replicated", false, 1, 1, tiles}};
  const std::vector<Point> more = {{"fsdp2", false, 2, 3, {}},
                                   {"fsdp2", true, 2, 2, tiles},
                                   {"fsdp2:no-reshard", true, 1, 1, {}},
                                   {"fsdp2:2", true, 2, 1, {}},
                                   {"zero1", false, 2, 1, {}},
                                   {"zero3", false, 1, 2, {}},
                                   {"hybrid:2:full", false, 1, 1, tiles},
                                   {"replicated", true, 2, 2, {}}};
  for (const std::vector<Point>& points : sampled({more, few}))
    for (const Point& point : points) {
      SCOPED_TRACE(message(point.strategy, point.recompute ? ", recomputed" : "", ", ", point.micro_batches,
                           " micro-batches, ", point.parts, " parts"));
      RunOptions options = options_of({.ranks = 4,
                                       .per_sequence = 2,
                                       .kv_heads = 3,
                                       .micro_batches = point.micro_batches,
                                       .parts = point.parts,
                                       .packed = point.micro_batches == 2});
      options.units.recompute = point.recompute;
      options.tiling = point.tiling;
      options.steps = 5;
      expect_follows(run(run_time(point.strategy), options), run(run_time(point.strategy), whole(options)));
    }
}

TEST(Sequence, TrainsAdaptersWithDropoutLikeWholeSequences) {
  RunOptions options = options_of({.kv_heads = 3, .parts = 2});
  options.config.lora = {.rank = 3, .alpha = 6, .dropout = 0.3};
  options.batch = [windows = odd_windows(false)](const Place& place) {  // in order: dropout depends on the row number
    const std::ptrdiff_t each = std::ssize(windows) / place.pieces();
    const auto first = windows.begin() + place.piece() * each;
    return std::vector<Window>(first, first + each);
  };
  options.units.recompute = true;
  expect_follows(run(run_time("fsdp2"), options), run(run_time("fsdp2"), whole(options)));
}

TEST(Sequence, IsBitIdenticalForRepeatedRunsAndAnyNumberOfGroups) {
  RunOptions options = options_of({.ranks = 2, .parts = 2});
  options.steps = 3;
  const RunResults once = run(run_time("fsdp2"), options), again = run(run_time("fsdp2"), options);
  expect_same_bits(once, again);

  options.micro_batches = 2;
  options.most_sequences = most_dealt(12, 1, 2);
  const RunResults one_group = run(run_time("fsdp2:pieces=2"), options);
  options.ranks = 4;
  options.micro_batches = 1;
  const RunResults two_groups = run(run_time("fsdp2:pieces=2"), options);
  expect_same_bits(two_groups, one_group);
  EXPECT_EQ(two_groups.norms, one_group.norms);
}

/// The elements that rank 0, which has the rows [0, N / 2), receives in the exchanges of a step: the inputs and outputs
/// of each layer's middle stage, once in each direction for any number of parts, and once more if backward recomputes.
std::int64_t exchanged_elements(const LlamaConfig& config, std::int64_t rows, bool recompute) {
  const std::int64_t heads = config.heads / 2;
  const std::int64_t shared = std::gcd(config.heads / config.kv_heads, heads);
  const std::int64_t out = heads * config.head_dim;
  const std::int64_t in = out + 2 * (heads / shared) * config.head_dim;
  const std::int64_t own = rows / 2;
  const std::int64_t forward = rows * in + own * 2 * out, backward = rows * out + own * 2 * in;
  return config.layers * (forward * (recompute ? 2 : 1) + backward);
}

TEST(Sequence, AddsOnlyTheExpectedExchangesToTheTraffic) {
  using comm::Op;
  for (const bool recompute : {false, true})
    for (const int parts : {1, 3})
      for (const int micro_batches : {1, 2}) {
        SCOPED_TRACE(message(parts, " parts, ", micro_batches, " micro-batches", recompute ? ", recomputed" : ""));
        RunOptions options = options_of({.kv_heads = 3, .micro_batches = micro_batches, .parts = parts});
        options.units.recompute = recompute;
        options.steps = 1;
        options.collects = false;
        options.evaluated = {};
        const comm::MeshTraffic found = run(run_time("fsdp2"), options).traffic.front();
        const std::int64_t each = options.config.layers * parts * (recompute ? 6 : 4);
        EXPECT_EQ(found.sequence[Op::all_to_all].calls, micro_batches * each);
        EXPECT_EQ(found.sequence.calls(), micro_batches * each);
        EXPECT_EQ(found.sequence[Op::all_to_all].bytes,
                  micro_batches * 4 * exchanged_elements(options.config, 12 / micro_batches * 7, recompute));
        const comm::MeshTraffic expected = run(run_time("fsdp2"), whole(options)).traffic.front();
        EXPECT_EQ(found.world, expected.world);
        EXPECT_EQ(expected.sequence, comm::Traffic{});
      }
}

/// Parts use no more memory than tiles of rows would: here 84 rows with 6 heads per rank, two of which share keys.
TEST(Sequence, TheTilingDeterminesTheNumberOfParts) {
  RunOptions options = options_of({.kv_heads = 3, .parts = 0});
  options.units.recompute = true;
  options.steps = 2;
  const std::int64_t row = 3 * 6 * options.config.head_dim * 4;  // q in rows and in heads, and the output
  const RunResults expected = run(run_time("fsdp2"), options);
  const auto expect_parts = [&](const tiling::RunTimeTiling& tiling, int parts) {
    SCOPED_TRACE(tiling.text());
    options.tiling = tiling;
    const RunResults found = run(run_time("fsdp2"), options);
    EXPECT_EQ(found.traffic.front().sequence.calls(), options.config.layers * parts * 6);
    expect_follows(found, expected);
    return found.memory.front().used_activations;
  };
  expect_parts({}, 1);
  expect_parts(tiling::RunTimeTiling::budget(84 * row), 1);
  expect_parts(tiling::RunTimeTiling::budget(84 * row - 1), 3);
  expect_parts(tiling::RunTimeTiling::budget(56 * row - 1), 6);
  for (const auto& without : {tiling::RunTimeTiling::tiles(8), tiling::RunTimeTiling::tokens(3)})
    expect_parts(without, 1);  // these tilings have no budget
  options.middle_parts = 6;
  const std::int64_t six = expect_parts(tiling::RunTimeTiling::tiles(8), 6);
  options.middle_parts = 1;
  EXPECT_LT(six, 0.9 * expect_parts(tiling::RunTimeTiling::tiles(8), 1));
}

/// Only the rotary table and the per-thread scratch of the attention backward are not divided. Matrices in flight need
/// as much memory as the inputs and outputs of the middle stage once more.
TEST(Sequence, RanksStoreOnlyTheirShareOfTheActivations) {
  const auto used = [](int per_sequence, bool recompute) {
    RunOptions options = options_of({.ranks = 4, .per_sequence = per_sequence, .kv_heads = 4});
    options.units.recompute = recompute;
    options.sequence_length = 480;
    options.most_sequences = 1;
    options.fewer_sequences = false;
    options.batch = [](const Place&) { return some_windows(1, 480, 37); };
    options.evaluated = {};
    options.steps = 1;
    options.collects = false;
    const Memory memory = run(run_time("fsdp2"), options).memory.front();
    return std::pair(memory.used_activations, memory.used[static_cast<std::size_t>(device::MemoryKind::scratch)]);
  };
  for (const bool recompute : {false, true})
    for (const int ranks : {2, 4}) {
      const auto [alone, scratch] = used(1, recompute);
      const std::int64_t table = 480 * 4 * 4, moving = 480 / ranks * (12 + 2 * 4 + 12) * 4 * 4;
      EXPECT_LE(used(ranks, recompute).first, alone / ranks + table + scratch + moving) << ranks << " ranks";
    }
}

struct SharedCase {
  const char* stack;
  int ranks;
  std::int64_t kv_heads = 3;
};

RunOptions queued_options(const SharedCase& one) {
  RunOptions options = options_of({.ranks = one.ranks, .kv_heads = one.kv_heads, .micro_batches = 2, .parts = 3});
  options.units.recompute = true;
  options.units.offload_inputs = 1;
  options.steps = 2;
  options.evaluated = {};
  return options;
}
/// With 12 key-value heads each part has its own heads; with 3, some parts of a rank read the same head; with 1, all
/// do.
constexpr SharedCase shared_cases[] = {{"fsdp2", 2},   {"zero3", 2},         {"replicated", 2}, {"zero1", 2},
                                       {"fsdp2:2", 4}, {"hybrid:2:full", 4}, {"fsdp2", 2, 1},   {"fsdp2", 2, 12}};

TEST(Sequence, IsBitIdenticalOnAnAsynchronousDeviceAndOverNccl) {
  if (sanitized) GTEST_SKIP() << "stacks on queues are not built under a sanitizer";
  for (const SharedCase& one : shared_cases)
    for (const std::string kind : {"/queued", "/nccl"}) {
      SCOPED_TRACE(message(one.stack, kind, ", ", one.kv_heads, " key-value heads"));
      const RunOptions options = queued_options(one);
      const RunResults expected = run(run_time(one.stack), options);
      const RunResults found = run(one.stack + kind, options);
      EXPECT_EQ(found.races, Names{});
      if (kind == "/queued") {
        expect_same_bits(found, expected);
      } else {  // NCCL sums in a different order
        expect_follows(found, expected, {.losses = 1e-6, .weights = 1e-5});
      }
      for (const Memory& memory : found.memory)
        EXPECT_EQ(memory.allocations_at_end, memory.allocations_after_first_step);
    }
}

TEST(Sequence, OmittingAnyEventOfAnExchangeCausesARace) {
  if (sanitized) GTEST_SKIP() << "stacks on queues are not built under a sanitizer";
  for (const std::int64_t kv_heads : {1, 3, 12}) {
    RunOptions options = queued_options({"fsdp2", 2, kv_heads});
    if (kv_heads != 3) options.config.layers = 1;  // the dependencies between blocks are the same
    SCOPED_TRACE(message(kv_heads, " key-value heads"));
    options.micro_batches = 1;
    options.middle_parts = kv_heads == 3 ? 2 : 3;
    options.most_sequences = 12;
    options.collects = false;
    options.check_only = true;
    const auto points = run("fsdp2/queued", options).points;
    EXPECT_GT(points.size(), 30u);
    for (const auto& point : points) {
      options.leave_out = point;
      EXPECT_NE(run("fsdp2/queued", options).races, Names{}) << "event " << point.front() << " is not needed";
    }
    options.leave_out.clear();
    options.check_only = false;
    EXPECT_EQ(run("fsdp2/queued", options).races, Names{}) << "with all events, and for tests that follow";
  }
}

TEST(Sequence, RandomDelaysGiveBitIdenticalResults) {
  RunOptions options = queued_options({"hybrid:2:full", 4});
  const RunResults usual = run(run_time("hybrid:2:full"), options);
  options.before = comm::random_delays(7, std::chrono::microseconds(500));
  const RunResults delayed = run(run_time("hybrid:2:full"), options);
  expect_same_bits(delayed, usual);
}

TEST(Sequence, RefusesModelsAndSettingsThatCannotShareSequences) {
  const auto sentence = [](const RunOptions& options) {
    return input_error_of([&] { run(run_time("fsdp2"), options); });
  };
  EXPECT_EQ(sentence(options_of({.ranks = 3, .per_sequence = 2})),
            "sequence: 3 ranks cannot be cut into groups of 2, which share each sequence; give 1 or 3");
  EXPECT_EQ(
      sentence(options_of({.ranks = 5, .per_sequence = 5})),
      "sequence: 12 heads of attention cannot be divided among 5 ranks that share each sequence; of 5 ranks 1 can "
      "share one");
}

}  // namespace
}  // namespace fsdp::test
