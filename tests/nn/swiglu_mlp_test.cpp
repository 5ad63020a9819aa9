// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/nn/swiglu_mlp.hpp>

#include "unit.hpp"

namespace fsdp::nn {
namespace {

using namespace reference;
using tiling::RunTimeTiling;

template <class Precision>
class SwiGluMlpTest : public ::testing::Test {};
using Precisions = ::testing::Types<Fp32, Bf16Mixed>;
TYPED_TEST_SUITE(SwiGluMlpTest, Precisions);

template <class Precision>
void expect_float64s(const Sizes& sizes, const Outcome& expected, const Run<>& run) {
  SCOPED_TRACE(::testing::Message() << sizes.tokens() << " tokens, hidden " << sizes.hidden << ", intermediate "
                                    << sizes.intermediate << (run.placing == Placing::padded ? ", padded" : ""));
  const Outcome found = outcome<BareMlp, Precision>(sizes, run);
  EXPECT_LE(relative(found.y, expected.y), forward_tolerance<Precision>);
  EXPECT_LE(relative(found.gradients, expected.gradients), gradient_tolerance<Precision>);
}

TYPED_TEST(SwiGluMlpTest, FollowsFloat64AtOddSizesWhereverItsWeightsStand) {
  const std::vector<Sizes> list = {{.length = 5, .hidden = 1, .intermediate = 5},
                                   {.length = 5, .hidden = 3, .intermediate = 7},
                                   {.length = 5, .hidden = 7, .intermediate = 35},
                                   {.length = 5, .hidden = 15, .intermediate = 7},
                                   {.length = 3, .hidden = 3, .intermediate = 257},
                                   {.length = 1, .hidden = 7, .intermediate = 1},
                                   {.sequences = 3, .length = 2, .hidden = 8, .intermediate = 16}};
  for (const Sizes& sizes : list) {
    const Outcome expected = expected_outcome<BareMlp, TypeParam>(sizes);
    for (const RunTimeTiling& tiling : {RunTimeTiling{}, RunTimeTiling::tiles(4)})
      for (const Placing placing : {Placing::adjacent, Placing::padded})
        expect_float64s<TypeParam>(
            sizes, expected, {.tiling = tiling, .placing = placing, .threads = placing == Placing::padded ? 2 : 1});
  }
}

TYPED_TEST(SwiGluMlpTest, DoesNotDependOnWhereItsWeightsStandNorOnItsThreads) {
  const Sizes sizes{.length = 9, .hidden = 7, .intermediate = 35};
  const Outcome usual = outcome<BareMlp, TypeParam>(sizes, Run<>{});
  for (const int threads : {1, 2, 3})
    for (const Placing placing : {Placing::adjacent, Placing::padded}) {
      const Outcome found = outcome<BareMlp, TypeParam>(sizes, Run<>{.placing = placing, .threads = threads});
      const double bound = std::is_same_v<TypeParam, Fp32> ? 1e-6 : 1e-2;
      EXPECT_LE(relative(found.y, usual.y), bound);
      EXPECT_LE(relative(found.gradients, usual.gradients), bound);
    }
}

TYPED_TEST(SwiGluMlpTest, AddsUpTheGradientsOfMicroBatchesAfterTheFirstOverwroteTheMemory) {
  const Sizes sizes{.length = 5, .hidden = 7, .intermediate = 5};
  const Outcome expected = expected_outcome<BareMlp, TypeParam>(sizes, 3);
  for (const RunTimeTiling& tiling : {RunTimeTiling{}, RunTimeTiling::tiles(4)})
    for (const Placing placing : {Placing::adjacent, Placing::padded})
      expect_float64s<TypeParam>(sizes, expected, {.tiling = tiling, .micro_batches = 3, .placing = placing});
}

TYPED_TEST(SwiGluMlpTest, TiledGivesTheUntiledGradients) {
  std::vector<RunTimeTiling> tilings = {RunTimeTiling::tokens(3), RunTimeTiling::tokens(1000)};
  for (const std::int64_t tiles : {1, 2, 4, 200}) tilings.push_back(RunTimeTiling::tiles(tiles));
  for (const std::int64_t length : {1, 2, 3, 5, 7, 9, 100})
    for (const int micro_batches : {1, 2}) {
      SCOPED_TRACE(::testing::Message() << length << " tokens, " << micro_batches << " micro-batches");
      const Sizes sizes{.length = length, .hidden = 7, .intermediate = 5};
      const Outcome untiled = outcome<BareMlp, TypeParam>(sizes, Run<>{.micro_batches = micro_batches});
      const bool exact = std::is_same_v<TypeParam, Fp32>;
      const Outcome expected = exact ? untiled : expected_outcome<BareMlp, TypeParam>(sizes, micro_batches);
      for (const RunTimeTiling& tiling : tilings) {
        const Outcome tiled =
            outcome<BareMlp, TypeParam>(sizes, Run<>{.tiling = tiling, .micro_batches = micro_batches});
        for (std::size_t i = 0; i < expected.gradients.size(); ++i)
          EXPECT_LE(relative(tiled.gradients[i], expected.gradients[i]),
                    exact ? 1e-6 : 1.5 * relative(untiled.gradients[i], expected.gradients[i]))
              << "gradient " << i;
        EXPECT_LE(relative(tiled.y, expected.y), exact ? 1e-6 : 1.5 * relative(untiled.y, expected.y));
      }
    }
}

/// Tiles of two tokens, every second one kept, starting with `first`.
struct EverySecondKept {
  bool first = false;
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    tiling::TilePlan plan = tiling::cut(problem, 2);
    for (std::size_t i = first ? 0 : 1; i < plan.tiles.size(); i += 2) plan.tiles[i].kept = true;
    return plan;
  }
};
static_assert(tiling::Tiling<EverySecondKept>);

TYPED_TEST(SwiGluMlpTest, MayKeepAnyOfItsTiles) {
  const Sizes sizes{.length = 9, .hidden = 7, .intermediate = 5};
  const Outcome expected = expected_outcome<BareMlp, TypeParam>(sizes, 2);
  for (const bool first : {true, false}) {
    const Run<EverySecondKept> run{.tiling = {first}, .micro_batches = 2};
    const Outcome found = outcome<BareMlp, TypeParam, EverySecondKept>(sizes, run);
    EXPECT_LE(relative(found.y, expected.y), forward_tolerance<TypeParam>);
    EXPECT_LE(relative(found.gradients, expected.gradients), gradient_tolerance<TypeParam>);
  }
}

TEST(SwiGluMlp, LetsCommunicationProceedAfterEveryMatmul) {
  for (const RunTimeTiling& tiling : {RunTimeTiling{}, RunTimeTiling::tiles(4)}) {
    Unit<device::Meta, BareMlp, Fp32> unit({.length = 8, .hidden = 64, .intermediate = 64}, {.tiling = tiling});
    std::vector<device::MatmulRecord> matmuls;
    unit.rank.stream.counters.matmuls = &matmuls;
    unit.forward();
    unit.backward();
    EXPECT_EQ(unit.polls, static_cast<int>(matmuls.size()));
    EXPECT_EQ(matmuls.size(), tiling == RunTimeTiling{} ? 6u : 7u * 4u);
  }
}

}  // namespace
}  // namespace fsdp::nn
