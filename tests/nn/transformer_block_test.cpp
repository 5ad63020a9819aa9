// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/nn/transformer_block.hpp>

#include <type_traits>
#include <vector>

#include <support/sanitizer.hpp>

#include "unit.hpp"

namespace fsdp::nn {
namespace {

using namespace reference;
using tiling::RunTimeTiling;

template <class KindT, class PrecisionT>
struct BlockSubject {
  using Kind = KindT;
  using Precision = PrecisionT;
  static constexpr bool attends = requires { &Kind::template share<Local<device::Cpu, Precision>>; };
};

template <class S>
class UnitOf : public ::testing::Test {};
using BlockSubjects =
    ::testing::Types<BlockSubject<BareMlp, Fp32>, BlockSubject<BareMlp, Bf16Mixed>, BlockSubject<AttentionHalf, Fp32>,
                     BlockSubject<AttentionHalf, Bf16Mixed>, BlockSubject<MlpHalf, Fp32>,
                     BlockSubject<MlpHalf, Bf16Mixed>, BlockSubject<Block, Fp32>, BlockSubject<Block, Bf16Mixed>,
                     BlockSubject<Block, Mixed>>;
TYPED_TEST_SUITE(UnitOf, BlockSubjects);

::testing::Message described(const Sizes& sizes) {
  return ::testing::Message() << sizes.sequences << " x " << sizes.length << " tokens, hidden " << sizes.hidden
                              << ", intermediate " << sizes.intermediate << ", heads " << sizes.heads << " / "
                              << sizes.kv_heads << " of " << sizes.head_dim;
}

/// Compares the outcome of `micro_batches` with float64, for each tiling and each placement of weights.
template <class S>
void expect_follows(const Sizes& sizes, const std::vector<RunTimeTiling>& tilings, int micro_batches = 1) {
  using Kind = typename S::Kind;
  using Precision = typename S::Precision;
  SCOPED_TRACE(described(sizes));
  const Outcome expected = expected_outcome<Kind, Precision>(sizes, micro_batches);
  for (const RunTimeTiling& tiling : tilings)
    for (const Placing placing : {Placing::adjacent, Placing::padded}) {
      SCOPED_TRACE(placing == Placing::padded ? "padded" : "adjacent");
      const Run<> run{
          .tiling = tiling, .micro_batches = micro_batches, .placing = placing, .threads = threads_of(placing)};
      expect_float64<Precision>(outcome<Kind, Precision>(sizes, run), expected);
    }
}

TYPED_TEST(UnitOf, MatchesFloat64AtOddSizesForAnyPlacementOfWeights) {
  std::vector<Sizes> list = {
      {.length = 5, .hidden = 1, .intermediate = 5},                                         // one head
      {.length = 7, .hidden = 3, .intermediate = 7, .heads = 3, .head_dim = 2},              // one key-value head
      {.sequences = 3, .length = 3, .hidden = 7, .heads = 4, .kv_heads = 2, .head_dim = 6},  // grouped heads
      {.sequences = 2, .length = 5, .hidden = 15, .intermediate = 5, .heads = 3, .head_dim = 6},
      {.length = 33, .hidden = 5, .intermediate = 3, .heads = 2, .head_dim = 2}};
  if (std::is_same_v<typename TypeParam::Precision, Fp32>)  // in bf16, the gradients of q and k would be noise around 0
    list.push_back({.sequences = 2, .length = 1, .hidden = 7, .intermediate = 35, .heads = 2, .head_dim = 2});
  for (const Sizes& sizes : list) expect_follows<TypeParam>(sizes, {RunTimeTiling{}});
  if constexpr (!TypeParam::attends)
    for (const Sizes& sizes :
         {Sizes{.length = 5, .hidden = 3, .intermediate = 7}, Sizes{.length = 5, .hidden = 7, .intermediate = 35},
          Sizes{.length = 5, .hidden = 15, .intermediate = 7}, Sizes{.length = 3, .hidden = 3, .intermediate = 257},
          Sizes{.length = 1, .hidden = 7, .intermediate = 1},
          Sizes{.sequences = 3, .length = 2, .hidden = 8, .intermediate = 16},
          Sizes{.length = 5, .hidden = 1, .intermediate = 5}})
      expect_follows<TypeParam>(sizes, {RunTimeTiling{}, RunTimeTiling::tiles(4)});
}

TYPED_TEST(UnitOf, MatchesFloat64WithPackedDocuments) {
  Sizes sizes{.sequences = 2, .length = 9, .hidden = 7, .intermediate = 5, .heads = 4, .kv_heads = 2, .head_dim = 6};
  sizes.documents = {0, 1, 5, 5, 9, 12, 18};
  expect_follows<TypeParam>(sizes, {RunTimeTiling{}, RunTimeTiling::tokens(4)});
}

TYPED_TEST(UnitOf, MatchesFloat64WithBiasesHeadNormsAndWindows) {
  const Sizes plain{
      .sequences = 2, .length = 9, .hidden = 7, .intermediate = 5, .heads = 4, .kv_heads = 2, .head_dim = 6};
  for (const int what : test::sanitized ? std::vector{3} : std::vector{0, 1, 2, 3}) {
    Sizes sizes = plain;
    sizes.biases = what == 0 || what == 3;
    sizes.head_norms = what == 1 || what == 3;
    sizes.window = what >= 2 ? 4 : 0;
    if (what == 3) sizes.documents = {0, 1, 5, 5, 9, 12, 18};
    SCOPED_TRACE(what);
    expect_follows<TypeParam>(sizes, {RunTimeTiling{}}, 2);
  }
}

TYPED_TEST(UnitOf, MatchesFloat64WithPathsOfLowRank) {
  Sizes sizes{.sequences = 2,
              .length = 9,
              .hidden = 7,
              .intermediate = 5,
              .heads = 4,
              .kv_heads = 2,
              .head_dim = 6,
              .rank = 3,
              .scale = 0.7f};
  for (const char* const paths : test::sanitized ? std::vector{"qkvogud"} : std::vector{"qkvogud", "qvd", "kog"}) {
    sizes.paths = paths;
    SCOPED_TRACE(paths);
    expect_follows<TypeParam>(sizes, {RunTimeTiling{}, RunTimeTiling::tokens(4), RunTimeTiling::tiles(4)}, 2);
  }
}

TYPED_TEST(UnitOf, AccumulatesGradientsAfterTheFirstMicroBatchOverwrites) {
  const Sizes sizes{
      .sequences = 2, .length = 5, .hidden = 7, .intermediate = 5, .heads = 2, .kv_heads = 1, .head_dim = 2};
  expect_follows<TypeParam>(sizes, {RunTimeTiling{}, RunTimeTiling::tiles(4)}, 3);
}

TYPED_TEST(UnitOf, TiledMatchesTheUntiledGradients) {
  using Kind = typename TypeParam::Kind;
  using Precision = typename TypeParam::Precision;
  constexpr bool exact = std::is_same_v<Precision, Fp32>;
  constexpr bool attends = TypeParam::attends;
  std::vector<RunTimeTiling> tilings = {RunTimeTiling::tokens(3)};
  for (const std::int64_t tiles : {1, 4, 200}) tilings.push_back(RunTimeTiling::tiles(tiles));
  if (!attends) tilings.insert(tilings.end(), {RunTimeTiling::tiles(2), RunTimeTiling::tokens(1000)});
  for (const std::int64_t length : {1, 2, 3, 5, 7, 9, 100})
    for (const int micro_batches : {1, 2}) {
      if (attends && !exact && (length == 1 || length == 100)) continue;  // noise around 0, or slow in float64
      SCOPED_TRACE(::testing::Message() << length << " tokens, " << micro_batches << " micro-batches");
      const Sizes sizes{.length = length, .hidden = 7, .intermediate = 5, .heads = 2, .kv_heads = 1, .head_dim = 2};
      const Outcome untiled = outcome<Kind, Precision>(sizes, Run<>{.micro_batches = micro_batches});
      const Outcome expected = exact ? untiled : expected_outcome<Kind, Precision>(sizes, micro_batches);
      for (const RunTimeTiling& tiling : tilings) {
        const Outcome tiled = outcome<Kind, Precision>(sizes, Run<>{.tiling = tiling, .micro_batches = micro_batches});
        if (attends && exact)
          expect_near_together(tiled, expected, 1e-6);
        else
          expect_untiled<Precision>(tiled, untiled, expected);
      }
    }
}

TYPED_TEST(UnitOf, DoesNotDependOnWeightPlacementOrThreads) {
  using Precision = typename TypeParam::Precision;
  const Sizes sizes{
      .sequences = 2, .length = 9, .hidden = 7, .intermediate = 35, .heads = 4, .kv_heads = 2, .head_dim = 6};
  const Outcome one = outcome<typename TypeParam::Kind, Precision>(sizes, Run<>{.threads = 1});
  for (const int threads : {1, 2, 3})
    for (const Placing placing : {Placing::adjacent, Placing::padded}) {
      if (TypeParam::attends && (threads == 1 || placing == Placing::padded)) continue;
      const Run<> run{.placing = placing, .threads = threads};
      const double bound = std::is_same_v<Precision, Fp32> ? 1e-6 : 1e-2;
      expect_near(outcome<typename TypeParam::Kind, Precision>(sizes, run), one, bound, bound);
    }
}

/// The expected y has norms in float. In bf16, the norms are rounded, and each normed row is rounded twice.
TEST(FloatNorms, AreCloserToFloat64ThanNormsInBf16) {
  const Sizes sizes{.sequences = 2,
                    .length = 16,
                    .hidden = 64,
                    .intermediate = 96,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 16,
                    .head_norms = true};
  const ValueList weights = module_weights<bf16>(Block::make<Local<device::Cpu, Mixed>>(sizes));
  const Values y = Block::forward(sizes, weights, rounded_numbers<bf16>(seed_of(0), sizes.tokens() * sizes.hidden));
  const double in_float = relative(outcome<Block, Mixed>(sizes, {}).y[0], y);
  const double in_bf16 = relative(outcome<Block, Bf16Mixed>(sizes, {}).y[0], y);
  RecordProperty("error_in_float", std::to_string(in_float));
  RecordProperty("error_in_bf16", std::to_string(in_bf16));
  EXPECT_LT(in_float, 0.9 * in_bf16) << in_bf16;
}

TYPED_TEST(UnitOf, PollsCommunicationForEveryMatmulButTheLast) {
  for (const RunTimeTiling& tiling : {RunTimeTiling{}, RunTimeTiling::tiles(4)}) {
    const Sizes sizes{.length = 8, .hidden = 64, .intermediate = 64, .heads = 1, .head_dim = 64};
    Unit<device::Meta, typename TypeParam::Kind, typename TypeParam::Precision> unit(sizes, {.tiling = tiling});
    std::vector<device::MatmulRecord> matmuls;
    unit.rank.stream.counters.matmuls = &matmuls;
    unit.forward();
    unit.backward();
    EXPECT_GE(unit.polls, static_cast<int>(matmuls.size()) - 1);
  }
}

}  // namespace
}  // namespace fsdp::nn
