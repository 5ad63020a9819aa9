// SPDX-License-Identifier: Apache-2.0
// Every tiling policy gives the results of the untiled MLP, with the memory and FLOPs of its plan.
#include <ostream>

#include <support/sanitizer.hpp>

#include "unit.hpp"

namespace fsdp::nn {
namespace {

using namespace reference;
using device::Cpu;
using device::Meta;
using tiling::RunTimeTiling;

const std::vector<std::int64_t> lengths = test::sanitized ? std::vector<std::int64_t>{1, 7, 9, 1000}
                                                          : std::vector<std::int64_t>{1, 2, 3, 5, 7, 9, 1000, 4097};

/// A bare MLP, or the MLP half of a block: the columns that its tile needs in addition to the MLP's, the bytes that it
/// saves in addition, and its gradients.
template <class KindT>
struct Case;
template <>
struct Case<BareMlp> {
  static std::int64_t own_columns(const Sizes&) { return 0; }
  static std::int64_t saved_besides(const Sizes&) { return 0; }
  static ValueList gradients(const Sizes& s, const ValueList& w, const Values& x, const Values& dy) {
    return swiglu_mlp_gradients(s, w, x, dy);
  }
};
template <>
struct Case<MlpHalf> {
  static std::int64_t own_columns(const Sizes& s) { return s.hidden; }
  static std::int64_t saved_besides(const Sizes& s) { return round_up(4 * s.tokens(), device::alignment); }  // rstd
  static ValueList gradients(const Sizes& s, const ValueList& w, const Values& x, const Values& dy) {
    return residual_mlp_gradients(s, w, x, dy);
  }
};

template <class KindT, class PrecisionT>
struct Subject {
  using Kind = KindT;
  using Precision = PrecisionT;
};
template <class S>
class MlpTiling : public ::testing::Test {};
using Subjects = ::testing::Types<Subject<BareMlp, Fp32>, Subject<BareMlp, Bf16Mixed>, Subject<MlpHalf, Fp32>,
                                  Subject<MlpHalf, Bf16Mixed>>;
TYPED_TEST_SUITE(MlpTiling, Subjects);

template <class S>
tiling::Problem problem_of(const Sizes& sizes) {
  using L = Local<Cpu, typename S::Precision>;
  return SwiGluTile<L>::problem(sizes.tokens(), sizes.hidden, sizes.intermediate, mlp_paths(sizes),
                                Case<typename S::Kind>::own_columns(sizes), 1);
}

struct Named {
  std::string name;
  RunTimeTiling tiling;
};

/// Tile counts and tile lengths above and below the sequence length, and budgets from the smallest possible one to that
/// of the untiled MLP.
template <class S>
std::vector<Named> policies(const Sizes& sizes) {
  const tiling::Problem problem = problem_of<S>(sizes);
  std::vector<Named> list = {{"off", RunTimeTiling{}}};
  for (const std::int64_t n : {1, 2, 4, 200, 5000})
    if (n < 5000 || sizes.tokens() < 5000) list.push_back({"tiles:" + std::to_string(n), RunTimeTiling::tiles(n)});
  for (const std::int64_t n : {3, 1000, 4096})
    if (n > 3 || sizes.tokens() < 5000) list.push_back({"tokens:" + std::to_string(n), RunTimeTiling::tokens(n)});
  const std::int64_t untiled = tiling::Untiled{}.plan(problem).peak_bytes();
  const std::int64_t smallest = tiling::smallest_budget(problem);
  for (const std::int64_t bytes : {smallest, problem.tile_bytes(std::min<std::int64_t>(sizes.tokens(), 256)) / 2,
                                   untiled / 2, untiled / 10 * 9, untiled})
    list.push_back({"budget:" + std::to_string(bytes), RunTimeTiling::budget(std::max(bytes, smallest))});
  return list;
}

/// The expected outcome in float64, by the chain rule.
template <class S>
Outcome chain_rule(const Sizes& sizes, int micro_batches) {
  using Kind = typename S::Kind;
  return outcome_by<Kind, typename S::Precision>(
      [&](const ValueList& w, const Values& x, const Values& dy) { return Case<Kind>::gradients(sizes, w, x, dy); },
      sizes, micro_batches);
}

TYPED_TEST(MlpTiling, ReferenceByTheChainRuleMatchesCentralDifferences) {
  const Sizes sizes{.sequences = 2, .length = 3, .hidden = 5, .intermediate = 7};
  const Outcome differences = expected_outcome<typename TypeParam::Kind, typename TypeParam::Precision>(sizes);
  EXPECT_LE(relative(chain_rule<TypeParam>(sizes, 1).gradients, differences.gradients), 1e-6);
}

TYPED_TEST(MlpTiling, MatchesFloat64WithPathsOfLowRankInBlocksOfColumns) {
  using Kind = typename TypeParam::Kind;
  using Precision = typename TypeParam::Precision;
  Sizes sizes{.sequences = 3, .length = 3, .hidden = 8, .intermediate = 136, .rank = 3, .scale = 0.5f};
  for (const char* const paths : test::sanitized ? std::vector{"gud"} : std::vector{"gud", "ud"}) {
    sizes.paths = paths;
    const tiling::Problem problem = problem_of<TypeParam>(sizes);
    const RunTimeTiling smallest = RunTimeTiling::budget(tiling::smallest_budget(problem));
    ASSERT_GT(smallest.plan(problem).columns_per_block, 0);
    const Outcome expected = expected_outcome<Kind, Precision>(sizes, 2);
    for (const RunTimeTiling& tiling : {RunTimeTiling{}, smallest}) {
      SCOPED_TRACE(paths);
      expect_float64<Precision>(outcome<Kind, Precision>(sizes, Run<>{.tiling = tiling, .micro_batches = 2}), expected);
    }
  }
}

TYPED_TEST(MlpTiling, MatchesTheUntiledGradientsWithEveryPolicy) {
  using Kind = typename TypeParam::Kind;
  using Precision = typename TypeParam::Precision;
  constexpr bool exact = std::is_same_v<Precision, Fp32>;
  for (const std::int64_t length : lengths) {
    // some lengths also have several sequences, several micro-batches, or weights with gaps
    const Sizes sizes{.sequences = length == 9 ? 3 : 1, .length = length, .hidden = 8, .intermediate = 136};
    const int micro_batches = length == 5 || length == 1000 ? 3 : 1;
    const Placing placing = length == 7 ? Placing::padded : Placing::adjacent;
    const Run<> usual{.micro_batches = micro_batches, .placing = placing, .threads = 2};
    const Outcome untiled = outcome<Kind, Precision>(sizes, usual);
    const Outcome expected = exact ? untiled : chain_rule<TypeParam>(sizes, micro_batches);
    for (const Named& policy : policies<TypeParam>(sizes)) {
      SCOPED_TRACE(::testing::Message() << length << " tokens, " << policy.name);
      Run<> run = usual;
      run.tiling = policy.tiling;
      expect_untiled<Precision>(outcome<Kind, Precision>(sizes, run), untiled, expected);
    }
  }
}

TEST(BlockTiling, MatchesTheUntiledGradientsWithEveryPolicy) {
  for (const std::int64_t length : {3, 9, 250}) {
    const Sizes sizes{
        .sequences = 2, .length = length, .hidden = 8, .intermediate = 136, .heads = 2, .kv_heads = 1, .head_dim = 4};
    const reference::Run<> usual{.micro_batches = 3, .threads = 2};
    const Outcome untiled = outcome<Block, Fp32>(sizes, usual);
    for (const Named& policy : policies<Subject<MlpHalf, Fp32>>(sizes)) {
      SCOPED_TRACE(::testing::Message() << length << " tokens, " << policy.name);
      reference::Run<> run = usual;
      run.tiling = policy.tiling;
      expect_near_together(outcome<Block, Fp32>(sizes, run), untiled, 1e-6);
    }
  }
}

/// Memory and FLOPs of one forward and backward.
struct Taken {
  std::int64_t peak = 0, held = 0, flops = 0;
  friend bool operator==(const Taken&, const Taken&) = default;
};
std::ostream& operator<<(std::ostream& out, const Taken& taken) {
  return out << "peak " << taken.peak << ", " << taken.held << " apart from scratch, " << taken.flops << " FLOPs";
}

template <class Device, class S>
Taken taken(const Sizes& sizes, const Run<>& run) {
  Unit<Device, typename S::Kind, typename S::Precision> unit(sizes, run);
  const std::int64_t before = unit.rank.arena.used();
  unit.rank.stream.counters = {};
  unit.forward();
  unit.backward();
  return {.peak = unit.rank.arena.peak() - before,
          .held = unit.rank.arena.peak_held() - before,
          .flops = unit.rank.stream.counters.matmul_flops};
}

/// Checks that the dry run uses the memory and FLOPs of the plan, and returns them.
template <class S>
Taken expect_planned(const Sizes& sizes, const Run<>& run) {
  Unit<Meta, typename S::Kind, typename S::Precision> unit(sizes, run);
  const tiling::TilePlan plan = plan_of(unit.context, unit.module);
  const Taken dry = taken<Meta, S>(sizes, run);
  EXPECT_EQ(dry.held, plan.peak_bytes() + Case<typename S::Kind>::saved_besides(sizes)) << plan;
  EXPECT_EQ(dry.flops, 18 * sizes.tokens() * sizes.hidden * sizes.intermediate + plan.recomputed_flops) << plan;
  return dry;
}

TYPED_TEST(MlpTiling, UsesExactlyThePlannedBytesAndFlops) {
  for (const std::int64_t length : lengths)
    for (const Placing placing : {Placing::adjacent, Placing::padded}) {
      if (placing == Placing::padded && length > 1000) continue;
      const Sizes sizes{.length = length, .hidden = 64, .intermediate = 192};
      const Taken untiled = taken<Meta, TypeParam>(sizes, {.placing = placing, .threads = 2});
      for (const Named& policy : policies<TypeParam>(sizes)) {
        SCOPED_TRACE(::testing::Message() << length << " tokens, " << policy.name);
        const Run<> run{.tiling = policy.tiling, .placing = placing, .threads = 2};
        const Taken dry = expect_planned<TypeParam>(sizes, run);
        EXPECT_EQ((taken<Cpu, TypeParam>(sizes, run)), dry);
        EXPECT_LE(dry.peak, untiled.peak);
      }
    }
}

/// The plan may exceed the use: with low-rank paths on all three projections, at most 2 of their 4 x rank columns are
/// unused at the peak, and in blocks of columns also one of the two copies of the hidden states.
TYPED_TEST(MlpTiling, StaysWithinItsBudgetWithLoraDropout) {
  constexpr auto size = std::int64_t{sizeof(typename TypeParam::Precision::Compute)};
  Sizes sizes{.length = 1024, .hidden = 64, .intermediate = 192, .rank = 32, .dropout = 0.5f};
  for (const char* const paths : {"gud", "gu", "d"}) {
    sizes.paths = paths;
    const tiling::Problem problem = problem_of<TypeParam>(sizes);
    const std::int64_t untiled = tiling::Untiled{}.plan(problem).peak_bytes(), tile = problem.tile_bytes(256);
    for (const std::int64_t bytes : {untiled, untiled / 2, tile, tile / 2}) {
      const Run<> run{.tiling = RunTimeTiling::budget(bytes)};
      Unit<Meta, typename TypeParam::Kind, typename TypeParam::Precision> unit(sizes, run);
      const tiling::TilePlan plan = plan_of(unit.context, unit.module);
      SCOPED_TRACE(::testing::Message() << paths << ", " << bytes << " bytes: " << plan);
      const Taken dry = taken<Meta, TypeParam>(sizes, run);
      EXPECT_EQ((taken<Cpu, TypeParam>(sizes, run)), dry);
      EXPECT_LE(plan.peak_bytes(), bytes);
      const std::int64_t planned = plan.peak_bytes() + Case<typename TypeParam::Kind>::saved_besides(sizes);
      EXPECT_LE(dry.held, planned);
      const bool blocked = plan.columns_per_block > 0;  // then the plan includes both copies
      const std::int64_t slack = sizes.paths == "gud" ? 2 * sizes.rank + (blocked ? sizes.hidden : 0) : 0;
      EXPECT_GE(dry.held, planned - plan.longest_tile() * slack * size);
    }
  }
}

/// With many threads, the scratch of a matmul may contain many copies of its result, for some lengths and not for
/// others.
TYPED_TEST(MlpTiling, NeverTakesMoreThanUntiledWhateverTheThreads) {
  int settled = 0;
  bool takes_scratch = false;  // true for oneDNN's float matmul with AVX-512
  for (const int threads : {1, 2, 8, 16, 64})
    for (const Placing placing : {Placing::adjacent, Placing::padded})
      for (const Sizes& sizes : {Sizes{.length = 1500, .hidden = 1024, .intermediate = 3072},
                                 Sizes{.length = 2048, .hidden = 1024, .intermediate = 3072},
                                 Sizes{.length = 4097, .hidden = 1024, .intermediate = 3072},
                                 Sizes{.length = 4097, .hidden = 64, .intermediate = 192}}) {
        const Taken untiled = taken<Meta, TypeParam>(sizes, {.placing = placing, .threads = threads});
        takes_scratch |= untiled.peak > untiled.held;
        for (const Named& policy : policies<TypeParam>(sizes)) {
          SCOPED_TRACE(::testing::Message()
                       << sizes.length << " tokens, " << policy.name << ", " << threads << " threads");
          const Run<> run{.tiling = policy.tiling, .placing = placing, .threads = threads};
          EXPECT_LE(expect_planned<TypeParam>(sizes, run).peak, untiled.peak);
          Unit<Meta, typename TypeParam::Kind, typename TypeParam::Precision> unit(sizes, run);
          settled += plan_of(unit.context, unit.module) != policy.tiling.plan(problem_of<TypeParam>(sizes));
        }
      }
  if (takes_scratch) {
    EXPECT_GT(settled, 0) << "no plan of a policy takes more: nothing was tested";
  }
}

TYPED_TEST(MlpTiling, UsesExactlyThePlannedMemoryAtFullSize) {
  for (const std::int64_t length : {2048, 8192, 131072}) {
    const Sizes sizes{.length = length, .hidden = 4096, .intermediate = 12288};
    const Taken untiled = taken<Meta, TypeParam>(sizes, {});
    for (const Named& policy : policies<TypeParam>(sizes)) {
      SCOPED_TRACE(::testing::Message() << length << " tokens, " << policy.name);
      EXPECT_LE((expect_planned<TypeParam>(sizes, {.tiling = policy.tiling})).peak, untiled.peak);
    }
  }
}

TYPED_TEST(MlpTiling, ABudgetBelowTheSmallestThrowsBeforeComputing) {
  const Sizes sizes{.length = 5, .hidden = 64, .intermediate = 192};
  const std::int64_t smallest = tiling::smallest_budget(problem_of<TypeParam>(sizes));
  Unit<Meta, typename TypeParam::Kind, typename TypeParam::Precision> unit(
      sizes, {.tiling = RunTimeTiling::budget(smallest - 1)});
  EXPECT_THROW(unit.forward(), InputError);
  EXPECT_EQ(unit.rank.stream.counters.matmul_flops, 0);
}

}  // namespace
}  // namespace fsdp::nn
