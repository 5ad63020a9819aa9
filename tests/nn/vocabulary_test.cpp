// SPDX-License-Identifier: Apache-2.0
// The modules at both ends of a model: tessera/fsdp/nn/embedding.hpp and fsdp/nn/loss_head.hpp.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include <range/v3/view/chunk.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>

#include "head.hpp"

namespace fsdp::nn {
namespace {

using namespace reference;
using tiling::RunTimeTiling;
using Targets = std::vector<std::int32_t>;

template <class Precision>
class Vocabulary : public ::testing::Test {};
using HeadPrecisions = ::testing::Types<Fp32, Bf16Mixed, Mixed>;
TYPED_TEST_SUITE(Vocabulary, HeadPrecisions);

/// Tokens with repetitions; with a large vocabulary, some of its entries do not occur.
Targets some_tokens(const Sizes& sizes, std::int64_t seed = 0) {
  Targets tokens(static_cast<std::size_t>(sizes.tokens()));
  for (auto&& [t, token] : ranges::views::enumerate(tokens))
    token = static_cast<std::int32_t>((seed + 5 * (static_cast<std::int64_t>(t) / 2) + 1) % sizes.vocabulary);
  return tokens;
}

Values as_values(const Targets& list) { return {list.begin(), list.end()}; }

/// The summed loss, the logits as `y`, and the gradients of norm, weight and x.
struct LossOutcome : Outcome {
  double loss = 0;
};

/// Runs the same batch `micro_batches` times. Memory that must not be read is NaN, and nothing but the outputs may be
/// written.
template <class Precision>
LossOutcome found_loss(const Sizes& sizes, const Targets& targets, float scale, const Run<>& run) {
  using Compute = typename Precision::Compute;
  Head<device::Cpu, Precision> head(sizes, run);
  const ValueList weights = head.set_weights();
  const Values x = rounded_numbers<Compute>(1, sizes.tokens() * sizes.hidden);
  head.stream.set(0, x);
  head.targets.set(0, as_values(targets));
  const std::int64_t used = head.rank.arena.used();
  const auto run_it = [&](auto operation) {
    head.loss_slot.set(0, {head.initial_loss});
    head.rank.poison_free_memory();
    operation();
    EXPECT_EQ(head.rank.arena.used(), used);
    return head.loss_slot.values(0)[0] - head.initial_loss;
  };

  LossOutcome result;
  for (int batch = 0; batch < run.micro_batches; ++batch) result.loss = run_it([&] { head.loss(scale); });
  EXPECT_NEAR(run_it([&] { head.loss_only(); }), result.loss, 1e-7 * std::abs(result.loss));
  EXPECT_EQ(run_it([&] { head.all_logits(); }), 0);
  result.y = {head.logits.values(0)};
  result.gradients = head.fields.gradients.all_values();
  for (std::size_t i = 0; i < 2; ++i)  // the reduction zeroes gradients that were not written
    if (!head.fields.written[i]) std::fill(result.gradients[i].begin(), result.gradients[i].end(), 0.0);
  result.gradients.push_back(head.stream.values(1));

  EXPECT_EQ(head.stream.values(0), x);
  EXPECT_EQ(head.targets.values(0), as_values(targets));
  EXPECT_EQ(head.fields.weights.all_values(), weights);
  EXPECT_TRUE(head.fields.weights.guards_untouched() && head.fields.gradients.guards_untouched());
  EXPECT_TRUE(head.stream.guards_untouched() && head.logits.guards_untouched() && head.targets.guards_untouched());
  EXPECT_TRUE(head.loss_slot.guards_untouched() && head.rank.sentinels_untouched());
  return result;
}

template <class Precision>
LossOutcome expected_loss(const Sizes& sizes, const Targets& targets, float scale) {
  using Compute = typename Precision::Compute;
  const ValueList weights = Head<device::Cpu, Precision>(sizes, {}).set_weights();
  const Values x = rounded_numbers<Compute>(1, sizes.tokens() * sizes.hidden);
  const auto scaled = [&](const ValueList& w, const Values& in) {
    return static_cast<double>(scale) * loss(sizes, w, in, targets);
  };
  return {{{logits(sizes, weights, x)}, gradients(scaled, weights, x)}, loss(sizes, weights, x, targets)};
}

template <class Precision>
void expect_loss(const LossOutcome& found, const LossOutcome& expected) {
  EXPECT_NEAR(found.loss, expected.loss, forward_tolerance<Precision> * std::abs(expected.loss));
  expect_float64<Precision>(found, expected);
}

/// The outcome of three identical micro-batches: weight gradients are summed, and dx is overwritten.
LossOutcome tripled(LossOutcome one) {
  for (const std::size_t i : {0, 1})
    for (double& value : one.gradients[i]) value *= 3;
  return one;
}

TYPED_TEST(Vocabulary, LossAndGradientsMatchFloat64AtOddSizesInAnyTiles) {
  for (const Sizes& sizes :
       {Sizes{.length = 5, .hidden = 1, .vocabulary = 7}, Sizes{.length = 1, .hidden = 7, .vocabulary = 3},
        Sizes{.length = 7, .hidden = 15, .vocabulary = 5, .eps = 1e-5f},
        Sizes{.sequences = 3, .length = 2, .hidden = 3, .vocabulary = 257},
        Sizes{.length = 5, .hidden = 3, .vocabulary = 2}}) {
    const LossOutcome expected = expected_loss<TypeParam>(sizes, some_tokens(sizes), 0.75f);
    for (const RunTimeTiling& tiling :
         {RunTimeTiling{}, RunTimeTiling::tiles(4), RunTimeTiling::tokens(3), RunTimeTiling::tokens(100)})
      for (const Placing placing : {Placing::adjacent, Placing::padded}) {
        SCOPED_TRACE(::testing::Message() << sizes.tokens() << " tokens, " << sizes.hidden << ", " << sizes.vocabulary);
        const Run<> run{.tiling = tiling, .placing = placing, .threads = threads_of(placing)};
        expect_loss<TypeParam>(found_loss<TypeParam>(sizes, some_tokens(sizes), 0.75f, run), expected);
      }
  }
}

/// Budgets from the smallest one, with tiles of one row and 64 columns, up to two blocks of columns.
TYPED_TEST(Vocabulary, BlocksOfColumnsMatchFloat64) {
  const Sizes sizes{.length = 7, .hidden = 3, .vocabulary = 150};
  Targets targets = some_tokens(sizes);
  targets[0] = 149;
  targets[2] = -1;
  targets[5] = 64;
  const LossOutcome expected = expected_loss<TypeParam>(sizes, targets, 0.75f);
  std::set<std::int64_t> blocks, tiles;
  for (const std::int64_t bytes : {600, 1000, 2000, 2500})
    for (const Placing placing : {Placing::adjacent, Placing::padded}) {
      SCOPED_TRACE(bytes);
      Run<> run{.tiling = RunTimeTiling::budget(bytes), .placing = placing, .threads = threads_of(placing)};
      Head<device::Cpu, TypeParam> head(sizes, run);
      const tiling::TilePlan plan = head.module.plan(head.context);
      blocks.insert(plan.columns_per_block);
      tiles.insert(std::ssize(plan.tiles));
      expect_loss<TypeParam>(found_loss<TypeParam>(sizes, targets, 0.75f, run), expected);
      run.micro_batches = 3;
      expect_loss<TypeParam>(found_loss<TypeParam>(sizes, targets, 0.75f, run), tripled(expected));
    }
  EXPECT_TRUE(blocks.contains(64) && tiles.size() > 1);
}

TYPED_TEST(Vocabulary, BlocksOfColumnsAreBitIdenticalInARepeatedRun) {
  const Sizes sizes{.length = 50, .hidden = 15, .vocabulary = 300};
  const Run<> run{.tiling = RunTimeTiling::budget(20000), .threads = 2};
  const LossOutcome a = found_loss<TypeParam>(sizes, some_tokens(sizes), 1, run);
  const LossOutcome b = found_loss<TypeParam>(sizes, some_tokens(sizes), 1, run);
  EXPECT_TRUE(a.loss == b.loss && a.gradients == b.gradients);
}

/// Ignored rows have no effect: a batch of only the other rows gives the same results.
TYPED_TEST(Vocabulary, IgnoredRowsAreSkippedBeforeAnyComputation) {
  const Sizes sizes{.length = 48, .hidden = 16, .vocabulary = 96};
  for (const RunTimeTiling& tiling : {RunTimeTiling{}, RunTimeTiling::tokens(16)}) {
    Targets targets = some_tokens(sizes);
    for (auto&& [t, target] : ranges::views::enumerate(targets))
      if (t % 3 != 1) target = -1;
    Head<device::Cpu, TypeParam> head(sizes, {.tiling = tiling});
    head.targets.set(0, as_values(targets));
    head.loss(1);
    EXPECT_EQ(head.rank.stream.counters.matmul_flops, 6 * 16 * sizes.hidden * sizes.vocabulary);
  }
}

TYPED_TEST(Vocabulary, IgnoredTargetsGiveNeitherLossNorGradient) {
  const Sizes sizes{.length = 9, .hidden = 7, .vocabulary = 15};
  Targets targets = some_tokens(sizes);
  for (const std::size_t ignored : {0u, 3u, 4u, 5u, 8u}) targets[ignored] = ignored % 2 == 0 ? -1 : -100;
  const LossOutcome expected = expected_loss<TypeParam>(sizes, targets, 2);
  for (const RunTimeTiling& tiling : {RunTimeTiling{}, RunTimeTiling::tiles(3), RunTimeTiling::tokens(1)}) {
    const LossOutcome found = found_loss<TypeParam>(sizes, targets, 2, Run<>{.tiling = tiling});
    expect_loss<TypeParam>(found, expected);
    for (const std::int64_t row : {0, 3, 4, 5, 8}) {
      const double* const dx = found.gradients[2].data() + at(row, sizes.hidden, 0);
      EXPECT_TRUE(std::all_of(dx, dx + sizes.hidden, [](double value) { return value == 0; })) << row;
    }
  }
}

TYPED_TEST(Vocabulary, IgnoringAllTargetsGivesZeroLossAndGradients) {
  const Sizes sizes{.length = 5, .hidden = 7, .vocabulary = 15};
  for (const RunTimeTiling& tiling : {RunTimeTiling{}, RunTimeTiling::tiles(4)}) {
    const LossOutcome found = found_loss<TypeParam>(sizes, Targets(5, -1), 2, Run<>{.tiling = tiling});
    EXPECT_EQ(found.loss, 0);
    for (const Values& gradient : found.gradients) EXPECT_EQ(gradient, Values(gradient.size(), 0.0));
  }
}

TYPED_TEST(Vocabulary, TiledMatchesTheUntiledLossAndGradients) {
  constexpr bool exact = std::is_same_v<TypeParam, Fp32>;
  for (const std::int64_t length : {1, 2, 3, 5, 7, 9, 100}) {
    const Sizes sizes{.length = length, .hidden = 7, .vocabulary = 15};
    const Targets targets = some_tokens(sizes);
    const LossOutcome untiled = found_loss<TypeParam>(sizes, targets, 0.5f, {});
    const LossOutcome expected = exact ? untiled : expected_loss<TypeParam>(sizes, targets, 0.5f);
    for (const RunTimeTiling& tiling :
         {RunTimeTiling::tiles(1), RunTimeTiling::tiles(4), RunTimeTiling::tiles(200), RunTimeTiling::tokens(3)}) {
      SCOPED_TRACE(::testing::Message() << length << " tokens");
      const LossOutcome tiled = found_loss<TypeParam>(sizes, targets, 0.5f, Run<>{.tiling = tiling});
      EXPECT_NEAR(tiled.loss, untiled.loss, 1e-6 * untiled.loss);
      expect_untiled<TypeParam>(tiled, untiled, expected);
    }
  }
}

TYPED_TEST(Vocabulary, HeadAccumulatesWeightGradientsAndOverwritesDx) {
  const Sizes sizes{.length = 5, .hidden = 7, .vocabulary = 15};
  const LossOutcome expected = tripled(expected_loss<TypeParam>(sizes, some_tokens(sizes), 0.5f));
  for (const RunTimeTiling& tiling : {RunTimeTiling{}, RunTimeTiling::tiles(4)}) {
    const Run<> run{.tiling = tiling, .micro_batches = 3};
    expect_loss<TypeParam>(found_loss<TypeParam>(sizes, some_tokens(sizes), 0.5f, run), expected);
  }
}

/// A norm in float over a matrix in bf16, and the reverse, which computes in float: dx is then rounded only once.
TEST(VocabularyOfFloatWeights, ANormOrAMatrixAloneMayBeInFloat) {
  const Sizes sizes{.length = 20, .hidden = 16, .vocabulary = 70};
  Targets targets = some_tokens(sizes);
  targets[7] = -1;
  const auto error = [&](const char* names, double bound) {
    fsdp::testing::float_names = names;
    const LossOutcome expected = expected_loss<Mixed>(sizes, targets, 0.75f);
    for (const RunTimeTiling& tiling : {RunTimeTiling{}, RunTimeTiling::tiles(3), RunTimeTiling::budget(3000)}) {
      const LossOutcome found = found_loss<Mixed>(sizes, targets, 0.75f, {.tiling = tiling});
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_LE(relative(found.gradients[i], expected.gradients[i]), i < 2 ? bound : std::max(bound, 3e-3)) << i;
      EXPECT_NEAR(found.loss, expected.loss, bound * expected.loss);
    }
    fsdp::testing::float_names = "*";
  };
  error("*norm*", 1e-2);
  error("*lm_head*", 3e-5);
  error("*", 3e-5);
}

TEST(VocabularyOfFloatWeights, AMatrixOfAnotherTypeThanPlannedIsRefused) {
  Head<device::Cpu, Mixed> head({.length = 2, .hidden = 4, .vocabulary = 5}, {});
  head.module.in_float = false;
  EXPECT_THROW(head.loss(1), LogicError);
}

TYPED_TEST(Vocabulary, EmbeddingGathersRowsAndAddsGradientsOfRepeatedTokens) {
  using Compute = typename TypeParam::Compute;
  for (const Sizes& sizes :
       {Sizes{.length = 1, .hidden = 1, .vocabulary = 1}, Sizes{.length = 9, .hidden = 7, .vocabulary = 3},
        Sizes{.sequences = 3, .length = 5, .hidden = 15, .vocabulary = 257}}) {
    Entry<device::Cpu, TypeParam> entry(sizes, {});
    const Values table = module_weights<Compute>(entry.module)[0];
    Values gradient(table.size(), 0.0);
    entry.fields.weights.set(0, table);
    const std::int64_t used = entry.rank.arena.used();
    for (const std::int64_t seed : {0, 1}) {  // two micro-batches
      const Targets tokens = some_tokens(sizes, seed);
      const Values dy = rounded_numbers<Compute>(2 + static_cast<std::uint64_t>(seed), sizes.tokens() * sizes.hidden);
      entry.tokens.set(0, as_values(tokens));
      entry.stream.poison();
      entry.stream.set(1, dy);
      entry.rank.poison_free_memory();
      entry.forward();
      Values expected = embedding(sizes, table, tokens);
      for (double& value : expected) value = static_cast<float>(Compute(static_cast<float>(value)));
      EXPECT_EQ(entry.stream.values(0), expected);
      entry.stream.set(0, Values(dy.size(), NAN));
      entry.backward();
      for (const auto& [token, row] : ranges::views::zip(tokens, dy | ranges::views::chunk(sizes.hidden)))
        for (double* to = &gradient[at(token, sizes.hidden, 0)]; const double value : row) *to++ += value;
      EXPECT_LE(relative(entry.fields.gradients.values(0), gradient), 1e-6);
      EXPECT_EQ(entry.stream.values(1), dy);
    }
    EXPECT_EQ(entry.rank.arena.used(), used);
    EXPECT_EQ(entry.fields.weights.values(0), table);
    EXPECT_TRUE(entry.fields.weights.guards_untouched() && entry.fields.gradients.guards_untouched());
    EXPECT_TRUE(entry.stream.guards_untouched() && entry.tokens.guards_untouched());
    EXPECT_TRUE(entry.rank.sentinels_untouched());
  }
}

}  // namespace
}  // namespace fsdp::nn
