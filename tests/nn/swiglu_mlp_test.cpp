// SPDX-License-Identifier: Apache-2.0
// Behaviour that only the MLP has; its results are tested with those of all units in transformer_block_test.cpp.
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

/// Tiles of two tokens; every second tile is kept. `first`: whether the first tile is kept.
struct EverySecondKept {
  bool first = false;
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    tiling::TilePlan plan = tiling::cut(problem, 2);
    for (std::size_t i = first ? 0 : 1; i < plan.tiles.size(); i += 2) plan.tiles[i].kept = true;
    return plan;
  }
};
static_assert(tiling::Tiling<EverySecondKept>);

TYPED_TEST(SwiGluMlpTest, MayKeepTheActivationsOfAnyOfItsTiles) {
  const Sizes sizes{.length = 9, .hidden = 7, .intermediate = 5};
  const Outcome expected = expected_outcome<BareMlp, TypeParam>(sizes, 2);
  for (const bool first : {true, false}) {
    const Run<EverySecondKept> run{.tiling = {first}, .micro_batches = 2};
    expect_float64<TypeParam>(outcome<BareMlp, TypeParam, EverySecondKept>(sizes, run), expected);
  }
}

TEST(SwiGluMlp, PollsCommunicationAfterEveryMatmul) {
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
