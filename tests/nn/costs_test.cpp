// SPDX-License-Identifier: Apache-2.0
// Memory and FLOPs of modules, on the CPU and in the dry run.
#include <device/trace.hpp>

#include "head.hpp"

namespace fsdp::nn {
namespace {

using namespace reference;
using device::Cpu;
using device::Meta;
using tiling::RunTimeTiling;

/// The counters and memory use after calls of a module.
using Costs = device::reference::Trace;

template <class Rank>
Costs costs_of(const Rank& rank) {
  return device::reference::left_by(rank.arena, rank.stream);
}

template <class Device, class Kind, class Precision>
Costs unit_costs(const Sizes& sizes, const Run<>& run) {
  Unit<Device, Kind, Precision> unit(sizes, run);
  unit.rank.stream.counters = {};
  unit.forward();
  unit.backward();
  return costs_of(unit.rank);
}

template <class Device, class Precision>
Costs head_costs(const Sizes& sizes, const Run<>& run, bool gradients) {
  Head<Device, Precision> head(sizes, run);
  if constexpr (!Device::counts_only) head.targets.set(0, Values(static_cast<std::size_t>(sizes.tokens()), 0.0));
  gradients ? head.loss(1) : head.loss_only();
  return costs_of(head.rank);
}

template <class Device, class Precision>
Costs logits_costs(const Sizes& sizes, const Run<>& run) {
  Head<Device, Precision> head(sizes, run);
  head.all_logits();
  return costs_of(head.rank);
}

template <class Device, class Precision>
Costs entry_costs(const Sizes& sizes, const Run<>& run) {
  Entry<Device, Precision> entry(sizes, run);
  if constexpr (!Device::counts_only) entry.tokens.set(0, Values(static_cast<std::size_t>(sizes.tokens()), 0.0));
  entry.forward();
  entry.backward();
  return costs_of(entry.rank);
}

template <class Precision>
class ModuleCosts : public ::testing::Test {};
using Precisions = ::testing::Types<Fp32, Bf16Mixed>;
TYPED_TEST_SUITE(ModuleCosts, Precisions);

TYPED_TEST(ModuleCosts, OnMetaMatchTheCpuToTheByte) {
  const std::vector<Sizes> list = {
      {.length = 5, .hidden = 7, .intermediate = 35, .heads = 2, .head_dim = 2, .vocabulary = 15},
      {.sequences = 2,
       .length = 40,
       .hidden = 64,
       .intermediate = 96,
       .heads = 4,
       .kv_heads = 2,
       .head_dim = 16,
       .vocabulary = 100},
      {.length = 150, .hidden = 32, .intermediate = 64, .heads = 1, .head_dim = 32, .vocabulary = 257},
      {.length = 30, .hidden = 24, .intermediate = 40, .heads = 2, .head_dim = 12, .rank = 3, .dropout = 0.25f}};
  for (const Sizes& sizes : list)
    for (const RunTimeTiling& tiling : {RunTimeTiling{}, RunTimeTiling::tiles(4), RunTimeTiling::tokens(64)})
      for (const Placing placing : {Placing::adjacent, Placing::padded}) {
        const int threads = tiling == RunTimeTiling::tiles(4) ? 2 : 1;
        SCOPED_TRACE(::testing::Message() << sizes.tokens() << " tokens, " << threads << " threads");
        const Run<> run{.tiling = tiling, .placing = placing, .threads = threads};
        using P = TypeParam;
        const Costs mlp = unit_costs<Cpu, BareMlp, P>(sizes, run);
        EXPECT_GT(mlp.matmul_flops, 0);
        EXPECT_EQ(mlp, (unit_costs<Meta, BareMlp, P>(sizes, run)));
        EXPECT_EQ((unit_costs<Cpu, Block, P>(sizes, run)), (unit_costs<Meta, Block, P>(sizes, run)));
        EXPECT_EQ((entry_costs<Cpu, P>(sizes, run)), (entry_costs<Meta, P>(sizes, run)));
        EXPECT_EQ((logits_costs<Cpu, P>(sizes, run)), (logits_costs<Meta, P>(sizes, run)));
        for (const bool gradients : {false, true})
          EXPECT_EQ((head_costs<Cpu, P>(sizes, run, gradients)), (head_costs<Meta, P>(sizes, run, gradients)));
      }
}

TYPED_TEST(ModuleCosts, OfAnMlpAre18UnitsOfFlopsUntiledAnd22Tiled) {
  const Sizes sizes{.length = 24, .hidden = 16, .intermediate = 40};
  const std::int64_t unit = sizes.tokens() * sizes.hidden * sizes.intermediate;
  for (const Placing placing : {Placing::adjacent, Placing::padded}) {
    const auto flops = [&]<class Kind>(Kind, RunTimeTiling tiling) {
      return unit_costs<Meta, Kind, TypeParam>(sizes, {.tiling = tiling, .placing = placing}).matmul_flops;
    };
    EXPECT_EQ(flops(BareMlp{}, RunTimeTiling{}), 18 * unit);
    EXPECT_EQ(flops(MlpHalf{}, RunTimeTiling{}), 18 * unit);
    for (const RunTimeTiling& tiling : {RunTimeTiling::tiles(2), RunTimeTiling::tiles(5), RunTimeTiling::tokens(7)}) {
      EXPECT_EQ(flops(BareMlp{}, tiling), 22 * unit);
      EXPECT_EQ(flops(MlpHalf{}, tiling), 22 * unit);
    }
  }
}

TYPED_TEST(ModuleCosts, OfABlockAreThreeMatmulsPerWeightMatrix) {
  const Sizes sizes{
      .sequences = 2, .length = 12, .hidden = 16, .intermediate = 40, .heads = 4, .kv_heads = 2, .head_dim = 8};
  const std::int64_t attention = (2 * sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim * sizes.hidden;
  const std::int64_t mlp = 3 * sizes.hidden * sizes.intermediate;
  const Costs untiled = unit_costs<Meta, Block, TypeParam>(sizes, {});
  EXPECT_EQ(untiled.matmul_flops, 6 * (attention + mlp) * sizes.tokens());
  EXPECT_EQ(untiled.attention_flops, 7 * sizes.sequences * sizes.heads * 12 * 12 * sizes.head_dim);
  const Costs tiled = unit_costs<Meta, Block, TypeParam>(sizes, {.tiling = RunTimeTiling::tiles(5)});
  EXPECT_EQ(tiled.matmul_flops - untiled.matmul_flops, 4 * sizes.hidden * sizes.intermediate * sizes.tokens());
  EXPECT_EQ(tiled.attention_flops, untiled.attention_flops);
}

/// Bytes at the low end of the arena that a unit's forward saves for its backward.
template <class Kind, class Precision>
std::int64_t saved_bytes(const Sizes& sizes, RunTimeTiling tiling) {
  Unit<Meta, Kind, Precision> unit(sizes, {.tiling = tiling});
  const std::int64_t before = unit.rank.low_end();
  unit.forward();
  return unit.rank.low_end() - before;
}

TYPED_TEST(ModuleCosts, AnUntiledMlpSavesGateAndUpAndATiledMlpSavesNothing) {
  const Sizes sizes{.length = 64, .hidden = 16, .intermediate = 48};
  const std::int64_t size = sizeof(typename TypeParam::Compute);
  EXPECT_EQ((saved_bytes<BareMlp, TypeParam>(sizes, RunTimeTiling{})), 64 * 2 * 48 * size);
  EXPECT_EQ((saved_bytes<BareMlp, TypeParam>(sizes, RunTimeTiling::tiles(4))), 0);
  EXPECT_EQ((saved_bytes<MlpHalf, TypeParam>(sizes, RunTimeTiling{})), 64 * 2 * 48 * size + 64 * 4);
  EXPECT_EQ((saved_bytes<MlpHalf, TypeParam>(sizes, RunTimeTiling::tiles(4))), 64 * 4);
}

TYPED_TEST(ModuleCosts, MemoryOfATiledMlpDependsOnTheTileNotTheSequence) {
  const auto workspace = [](std::int64_t length) {
    const Sizes sizes{.length = length, .hidden = 16, .intermediate = 48};
    const Costs costs = unit_costs<Meta, BareMlp, TypeParam>(sizes, {.tiling = RunTimeTiling::tokens(16)});
    return costs.peak - costs.peak_scratch - costs.used;
  };
  EXPECT_EQ(workspace(64), workspace(640));
  EXPECT_EQ(workspace(64), 16 * 3 * 48 * static_cast<std::int64_t>(sizeof(typename TypeParam::Compute)));
}

TYPED_TEST(ModuleCosts, MemoryOfATiledHeadDependsOnTheTileNotTheSequence) {
  for (const bool gradients : {false, true}) {
    const auto peak = [&](std::int64_t length) {
      const Sizes sizes{.length = length, .hidden = 16, .vocabulary = 512};
      const Costs costs = head_costs<Meta, TypeParam>(sizes, {.tiling = RunTimeTiling::tokens(16)}, gradients);
      return costs.peak - costs.used;
    };
    EXPECT_EQ(peak(64), peak(640));
    EXPECT_LT(peak(640), 640 * 512 * 2);
  }
}

}  // namespace
}  // namespace fsdp::nn
