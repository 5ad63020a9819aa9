// SPDX-License-Identifier: Apache-2.0
// A head with a large vocabulary: its memory, to the byte, and its results within that memory.
#include <algorithm>

#include <range/v3/view/zip.hpp>

#include "device/reference.hpp"
#include "head.hpp"

namespace fsdp::nn {
namespace {

using namespace reference;
using tiling::RunTimeTiling;

constexpr std::int64_t mebi = std::int64_t{1} << 20;

/// A head of Llama 3's vocabulary with its memory, in an arena of exactly `arena_bytes`.
template <class Device, class Precision>
struct LargeHead {
  using L = Local<Device, Precision>;
  using Compute = typename L::Compute;
  using Accumulate = typename L::Accumulate;
  static constexpr bool in_float = has_float_weights<Precision>;
  using Weight = std::conditional_t<in_float, float, Compute>;

  LossHead<L> module;
  std::int64_t tokens;
  device::Ledger ledger;
  device::Block<Device> x, dx, weights, gradients, targets;
  typename Device::Arena arena;
  typename Device::Stream stream;
  Context<L> context;
  std::array<bool, 2> written{};
  double loss_sum = 0;

  LargeHead(const Sizes& sizes, const RunTimeTiling& tiling, int threads, std::int64_t arena_bytes)
      : module{{}, sizes.vocabulary, sizes.hidden, sizes.eps, false, in_float},
        tokens(sizes.tokens()),
        x(block<Compute>(tokens * sizes.hidden)),
        dx(block<Compute>(tokens * sizes.hidden)),
        weights(block<Weight>((sizes.vocabulary + 1) * sizes.hidden)),
        gradients(block<Accumulate>((sizes.vocabulary + 1) * sizes.hidden)),
        targets(block<std::int32_t>(tokens)),
        arena(make(ledger, arena_bytes)),
        stream(arena, threads),
        context{
            .arena = arena, .stream = stream, .plans = std::make_shared<TilePlans>(tiling), .sequence_length = tokens} {
    using Dry = Local<device::MetaFor<Device>, Precision>;
    const LossHead<Dry> dry{{}, sizes.vocabulary, sizes.hidden, sizes.eps, false, in_float};
    add_dry_run<Dry>(*context.plans, dry, threads);
  }

  template <class T>
  device::Block<Device> block(std::int64_t elements) {
    return {ledger, device::MemoryKind::weights, elements * std::int64_t{sizeof(T)}};
  }
  static typename Device::Arena make(device::Ledger& ledger, std::int64_t bytes) {
    if constexpr (Device::counts_only)
      return Device::Arena::unbounded();
    else
      return typename Device::Arena(ledger, bytes);
  }
  template <class T>
  static T* data(const device::Block<Device>& block) {
    return reinterpret_cast<T*>(block.data());
  }
  template <class T>
  Tensor<T> stream_of(const device::Block<Device>& block) const {
    return {data<T>(block), {tokens, module.hidden}};
  }
  /// The norm [H] and the weight [V, H], which follows it in memory.
  template <class T>
  std::array<Tensor<T>, 2> fields(const device::Block<Device>& block) const {
    return {Tensor<T>{data<T>(block), {module.hidden}},
            Tensor<T>{data<T>(block) + module.hidden, {module.vocabulary, module.hidden}}};
  }
  Tensor<std::int32_t> target_list() const { return {data<std::int32_t>(targets), {tokens}}; }

  void loss(float scale) {
    const auto w = fields<const Weight>(weights);
    const auto g = fields<Accumulate>(gradients);
    module.loss(context, {w[0], w[1]}, {{g[0], &written[0]}, {g[1], &written[1]}}, stream_of<const Compute>(x),
                target_list(), scale, stream_of<Compute>(dx), {&loss_sum, {1}});
  }
  void loss_only() {
    const auto w = fields<const Weight>(weights);
    module.loss_only(context, {w[0], w[1]}, stream_of<const Compute>(x), target_list(), {&loss_sum, {1}});
  }
};

template <class Precision>
class LargeVocabulary : public ::testing::Test {};
using HeadPrecisions = ::testing::Types<Fp32, Bf16Mixed, Mixed>;
TYPED_TEST_SUITE(LargeVocabulary, HeadPrecisions);

TYPED_TEST(LargeVocabulary, NeverExceedsItsBudget) {
  for (const std::int64_t hidden : {64, 4096})
    for (const std::int64_t mebibytes : {5, 17, 100, 1024, 8192})
      for (const bool gradients : {true, false}) {
        const Sizes sizes{.length = 8192, .hidden = hidden, .vocabulary = 128256};
        LargeHead<device::Meta, TypeParam> head(sizes, RunTimeTiling::budget(mebibytes * mebi), 2, 0);
        const tiling::TilePlan plan = head.module.plan(head.context);
        gradients ? head.loss(1) : head.loss_only();
        EXPECT_LE(plan.peak_bytes(), mebibytes * mebi);
        const std::int64_t row =
            (hidden + sizes.vocabulary) * std::int64_t{sizeof(typename decltype(head)::Weight)} + 8;
        EXPECT_EQ(plan.columns_per_block > 0, tiling::shortest_tile * row > mebibytes * mebi) << plan;
        if (gradients)
          EXPECT_EQ(head.arena.peak_held(), plan.peak_bytes()) << plan;
        else
          EXPECT_LE(head.arena.peak_held(), plan.peak_bytes()) << plan;
        const std::int64_t work = 2 * sizes.tokens() * hidden * sizes.vocabulary;
        EXPECT_EQ(head.stream.counters.matmul_flops, gradients ? 3 * work + plan.recomputed_flops : work) << plan;
      }
}

TYPED_TEST(LargeVocabulary, NeverTakesMoreThanUntiledWhateverTheThreads) {
  const auto peak = [](const Sizes& sizes, const RunTimeTiling& tiling, int threads) {
    LargeHead<device::Meta, TypeParam> head(sizes, tiling, threads, 0);
    head.loss(1);
    return head.arena.peak();
  };
  for (const int threads : {1, 2, 8, 16, 64})
    for (const Sizes& sizes : {Sizes{.length = 4097, .hidden = 64, .vocabulary = 1000},
                               Sizes{.length = 1500, .hidden = 1024, .vocabulary = 32000},
                               Sizes{.length = 4097, .hidden = 1024, .vocabulary = 32000}}) {
      const std::int64_t untiled = peak(sizes, RunTimeTiling(), threads);
      for (const RunTimeTiling& tiling :
           {RunTimeTiling::tiles(2), RunTimeTiling::tiles(4), RunTimeTiling::tokens(64), RunTimeTiling::tokens(1024),
            RunTimeTiling::budget(mebi), RunTimeTiling::budget(64 * mebi)})
        EXPECT_LE(peak(sizes, tiling, threads), untiled) << sizes.length << " tokens, " << threads << " threads";
    }
}

/// Expected loss and gradients of the rows with targets, in float64.
struct Expected {
  double loss = 0;
  Values norm, weight, dx;  // [H], [V, H], [rows, H]
};

Expected in_float64(const Sizes& sizes, const Values& norm, const Values& weight, const Values& x,
                    const std::vector<std::int32_t>& targets, double scale) {
  const auto eps = static_cast<double>(sizes.eps);
  const Values normed = norm_reference(x, norm, eps);
  const device::reference::CrossEntropyReference loss =
      device::reference::cross_entropy_reference(linear(normed, weight, sizes.hidden), targets, scale);
  const device::reference::NormGradients of_norm =
      device::reference::norm_gradients(x, norm, times(loss.gradient, weight, sizes.vocabulary), eps);
  return {.loss = loss.loss,
          .norm = of_norm.dw,
          .weight = outer(loss.gradient, normed, sizes.vocabulary, sizes.hidden),
          .dx = of_norm.dx};
}

template <class T>
Values values_of(Tensor<T> tensor) {
  return Values(tensor.data(), tensor.data() + tensor.numel());
}

/// Compares loss and gradients with float64 if only rows with counts(row) have targets, in an arena of the planned
/// size.
template <class Precision, class Counts>
void expect_float64(const Sizes& sizes, const RunTimeTiling& tiling, Counts counts) {
  using Compute = typename Precision::Compute;
  LargeHead<device::Meta, Precision> planned(sizes, tiling, 2, 0);
  planned.loss(1);
  LargeHead<device::Cpu, Precision> head(sizes, tiling, 2, planned.arena.peak());

  using Weight = typename decltype(head)::Weight;
  const auto w = head.template fields<Weight>(head.weights);
  const ValueList weights = module_weights<Compute>(head.module);
  for (const auto& [values, field] : ranges::views::zip(weights, w))
    std::transform(values.begin(), values.end(), field.data(), [](double v) { return Weight(static_cast<float>(v)); });
  const auto x = head.template stream_of<Compute>(head.x);
  const Tensor<std::int32_t> targets = head.target_list();
  Values some_x;
  std::vector<std::int32_t> some_targets;
  for (std::int64_t t = 0; t < sizes.tokens(); ++t) {
    targets[t] = counts(t) ? static_cast<std::int32_t>(t * 9973 % sizes.vocabulary) : -1;
    const Values row = counts(t) ? rounded_numbers<Compute>(static_cast<std::uint64_t>(t), sizes.hidden)
                                 : Values(static_cast<std::size_t>(sizes.hidden), NAN);  // never read
    std::transform(row.begin(), row.end(), x.row(t), [](double v) { return Compute(static_cast<float>(v)); });
    if (!counts(t)) continue;
    some_targets.push_back(targets[t]);
    some_x.insert(some_x.end(), row.begin(), row.end());
  }
  head.loss(0.5f);

  const Expected expected = in_float64(sizes, weights[0], weights[1], some_x, some_targets, 0.5);
  EXPECT_NEAR(head.loss_sum, expected.loss, forward_tolerance<Precision> * expected.loss);
  const auto g = head.template fields<typename Precision::Accumulate>(head.gradients);
  EXPECT_LE(relative(values_of(g[0]), expected.norm), gradient_tolerance<Precision>);
  EXPECT_LE(relative(values_of(g[1]), expected.weight), gradient_tolerance<Precision>);
  const auto dx = head.template stream_of<Compute>(head.dx);
  Values found;
  for (std::int64_t t = 0; t < sizes.tokens(); ++t) {
    const Values row = device::reference::values_of(dx.slice(t, t + 1));
    if (targets[t] >= 0)
      found.insert(found.end(), row.begin(), row.end());
    else
      ASSERT_EQ(row, Values(row.size())) << t;
  }
  EXPECT_LE(relative(found, expected.dx), gradient_tolerance<Precision>);
  head.loss_sum = 0;
  head.loss_only();
  EXPECT_NEAR(head.loss_sum, expected.loss, forward_tolerance<Precision> * expected.loss);
}

TYPED_TEST(LargeVocabulary, MatchesFloat64WithinItsBudgetIfFewTokensHaveTargets) {
  const Sizes sizes{.length = 8192, .hidden = 64, .vocabulary = 128256, .eps = 1e-5f};
  const RunTimeTiling tiling = RunTimeTiling::budget(5 * mebi);
  LargeHead<device::Meta, TypeParam> planned(sizes, tiling, 2, 0);
  const tiling::TilePlan plan = planned.module.plan(planned.context);
  ASSERT_GT(plan.columns_per_block, 0);
  EXPECT_LE(plan.peak_bytes(), 5 * mebi);
  expect_float64<TypeParam>(sizes, tiling, [](std::int64_t t) { return t % 701 == 700 || t == 701 || t == 8191; });
}

// If oneDNN needs more scratch for fewer rows, the matmuls are padded with rows of zeros.
TYPED_TEST(LargeVocabulary, MatchesFloat64ForAnySkippedRows) {
  const Sizes sizes{.length = 100, .hidden = 64, .vocabulary = 300, .eps = 1e-5f};
  for (const RunTimeTiling& tiling : {RunTimeTiling{}, RunTimeTiling::tokens(64), RunTimeTiling::budget(40000)})
    for (std::int64_t valid = 1; valid <= 100; valid += 11)
      expect_float64<TypeParam>(sizes, tiling, [&](std::int64_t t) { return t * 37 % 100 < valid; });
}

TYPED_TEST(LargeVocabulary, UsesThePlannedMemoryOnTheCpuIfNoTargetIsIgnored) {
  for (const std::int64_t kibibytes : {40, 100, 400, 4000}) {
    const Sizes sizes{.length = 512, .hidden = 32, .vocabulary = 1024};
    const RunTimeTiling tiling = RunTimeTiling::budget(kibibytes * 1024);
    LargeHead<device::Meta, TypeParam> planned(sizes, tiling, 2, 0);
    LargeHead<device::Cpu, TypeParam> head(sizes, tiling, 2, std::int64_t{64} << 20);
    planned.loss(1);
    head.loss(1);
    EXPECT_EQ(head.arena.peak(), planned.arena.peak());
    EXPECT_EQ(head.arena.peak_held(), planned.arena.peak_held());
    EXPECT_EQ(head.arena.peak_held(), head.module.plan(head.context).peak_bytes()) << head.module.plan(head.context);
    EXPECT_LE(head.arena.peak_held(), kibibytes * 1024);
  }
}

TYPED_TEST(LargeVocabulary, SkippedRowsTakeNoMoreMemoryThanPlanned) {
  const Sizes sizes{.length = 200, .hidden = 64, .vocabulary = 300};
  for (const RunTimeTiling& tiling : {RunTimeTiling{}, RunTimeTiling::tokens(64), RunTimeTiling::budget(40000)})
    for (const int threads : device::reference::team_sizes()) {
      LargeHead<device::Meta, TypeParam> planned(sizes, tiling, threads, 0);
      planned.loss(1);
      planned.loss(1);  // accumulates into the gradients, for which oneDNN may need more scratch
      LargeHead<device::Cpu, TypeParam> head(sizes, tiling, threads, planned.arena.peak());
      const Tensor<std::int32_t> targets = head.target_list();
      for (const std::int64_t apart : {1, 2, 3, 7, 50, 200})
        for (const std::int64_t together : {1, 2, 199}) {
          std::generate_n(targets.data(), targets.numel(),
                          [&, t = std::int64_t{0}]() mutable { return t++ % (apart + together) < together ? 5 : -1; });
          EXPECT_NO_THROW(head.loss(1)) << apart << " " << together;
          EXPECT_NO_THROW(head.loss_only()) << apart << " " << together;
        }
      EXPECT_LE(head.arena.peak(), planned.arena.peak());
    }
}

}  // namespace
}  // namespace fsdp::nn
