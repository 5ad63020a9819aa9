// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/nn/tile_plans.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/fsdp/nn/loss_head.hpp>
#include <tessera/fsdp/nn/swiglu_mlp.hpp>
#include <tessera/tiling/policies.hpp>

#include "unit.hpp"

namespace fsdp::nn {
namespace {

using device::Cpu;
using device::Meta;
using tiling::RunTimeTiling;
using OnMeta = Local<Meta, Bf16Mixed>;
using OnCpu = Local<Cpu, Bf16Mixed>;

/// A context of `tokens` tokens, to request the plans of modules without computing anything.
template <class L>
struct Planner {
  testing::TestRank<typename L::Device> rank{2};
  Context<L> context;

  Planner(const TilePlans& plans, std::int64_t tokens)
      : context{.arena = rank.arena,
                .stream = rank.stream,
                .plans = std::make_shared<TilePlans>(plans),
                .sequence_length = tokens} {}
};

/// Plans as recorded before TilePlans existed. They do not depend on the scratch of matmuls.
TEST(TilePlans, MatchTheRecordedPlans) {
  const auto plan = [](auto module, const RunTimeTiling& tiling, std::int64_t tokens) {
    Planner<OnMeta> planner(TilePlans(tiling), tokens);
    if constexpr (requires { module.plan(planner.context); })
      return message(module.plan(planner.context));
    else
      return message(plan_of(planner.context, module));
  };
  const SwiGluMlp<OnMeta> mlp{{}, 1024, 2816};
  EXPECT_EQ(plan(mlp, RunTimeTiling::tiles(4), 4096),
            "4 tiles of up to 1024 tokens, 0 kept; 17301504 bytes; 47244640256 FLOPs recomputed");
  EXPECT_EQ(plan(mlp, RunTimeTiling::tokens(1000), 4096),
            "5 tiles of up to 820 tokens, 0 kept; 13854720 bytes; 47244640256 FLOPs recomputed");
  EXPECT_EQ(plan(mlp, RunTimeTiling::budget(200'000'000), 4096),
            "1 tile of 4096 tokens, 1 kept; 69206016 bytes; 0 FLOPs recomputed");
  const ResidualMlp<OnMeta> residual{{}, 1024, 2816, 1e-5f, 3};
  EXPECT_EQ(plan(residual, RunTimeTiling::tokens(1000), 4096),
            "5 tiles of up to 820 tokens, 0 kept; 15534080 bytes; 47244640256 FLOPs recomputed");
  EXPECT_EQ(plan(residual, RunTimeTiling::budget(200'000'000), 4096),
            "1 tile of 4096 tokens, 1 kept; 169869312 bytes; 0 FLOPs recomputed");
  const LossHead<OnMeta> head{{}, 32000, 1024};
  EXPECT_EQ(plan(head, RunTimeTiling::tokens(1000), 1024),
            "2 tiles of up to 512 tokens, 0 kept; 33820672 bytes; 0 FLOPs recomputed");
  EXPECT_EQ(plan(head, RunTimeTiling::budget(1'000'000), 1024),
            "8 tiles of up to 144 tokens in blocks of 64 columns, 0 kept; 907776 bytes; 66974646272 FLOPs recomputed");
}

/// A fake module with given bytes per token and per tile, which counts its dry runs.
struct MadeUp {
  std::int64_t bytes_per_token = 100, bytes_per_tile = 0;
  std::shared_ptr<int> runs = std::make_shared<int>(0);

  tiling::Problem problem(std::int64_t tokens) const {
    return {.tokens = tokens, .kept_bytes_per_token = bytes_per_token, .tile_bytes_per_token = bytes_per_token};
  }
  ModuleDryRun dry_run() const {
    return {.kind = typeid(MadeUp),
            .problem = [*this](std::int64_t tokens) { return problem(tokens); },
            .peak =
                [*this](const tiling::TilePlan& plan, std::int64_t, int micro_batches) {
                  ++*runs;
                  return bytes_per_tile * std::ssize(plan.tiles) + 1000 * micro_batches;
                }};
  }
};

TEST(TilePlans, AreUntiledIfTilingWouldUseMoreMemory) {
  for (const std::int64_t bytes_per_tile : {-1, 0, 1}) {
    const MadeUp module{.bytes_per_tile = bytes_per_tile};
    TilePlans plans{RunTimeTiling::tiles(4)};
    plans.add(module.dry_run());
    const tiling::TilePlan& plan = plans.plan(typeid(MadeUp), module.problem(1024));
    EXPECT_EQ(plan, bytes_per_tile > 0 ? tiling::Untiled{}.plan(module.problem(1024))
                                       : RunTimeTiling::tiles(4).plan(module.problem(1024)));
  }
}

/// Even if a policy states otherwise, its tiles must cover the tokens, and their costs are computed.
TEST(TilePlans, AreValidatedAndCostedWhenMade) {
  struct Fixed {
    tiling::TilePlan result;
    tiling::TilePlan plan(const tiling::Problem&) const { return result; }
  };
  const MadeUp module;
  TilePlans gap(Fixed{{.tiles = {{0, 2}, {3, 5}}}}), unpriced(Fixed{{.tiles = {{0, 2}, {2, 5}}, .tile_bytes = 1}});
  EXPECT_THROW(gap.plan(typeid(MadeUp), module.problem(5)), InputError);
  unpriced.add(module.dry_run());
  EXPECT_EQ(unpriced.plan(typeid(MadeUp), module.problem(5)).tile_bytes, 300);
}

TEST(TilePlans, DryRunAModuleOnceAndOnlyIfThePolicyTilesIt) {
  const MadeUp module;
  TilePlans plans{RunTimeTiling::tiles(4)};
  plans.add(module.dry_run());
  const tiling::TilePlan* const first = &plans.plan(typeid(MadeUp), module.problem(1024));
  plans.plan(typeid(MadeUp), module.problem(1));
  EXPECT_EQ(*module.runs, 2);  // two runs compare tiled and untiled; one token needs none
  plans.plan(typeid(MadeUp), module.problem(512));
  EXPECT_EQ(*module.runs, 4);
  EXPECT_EQ(first, &plans.plan(typeid(MadeUp), module.problem(1024)));
  EXPECT_EQ(*module.runs, 4);
}

TEST(TilePlans, DryRunATileOfAHeadOncePerVariant) {
  const MadeUp module;
  TilePlans plans;
  plans.add(module.dry_run());
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(plans.tile_peaks(typeid(MadeUp), module.problem(7), 0), (TilePlans::Peaks{0, 1000, 2000}));
    EXPECT_EQ(plans.tile_peaks(typeid(MadeUp), module.problem(7), 64), (TilePlans::Peaks{0, 1000, 2000}));
  }
  EXPECT_EQ(*module.runs, 6);
}

TEST(TilePlans, AreSeparateForModulesOfOneTypeAndDifferentSizes) {
  const MadeUp small{.bytes_per_tile = 1}, large{.bytes_per_token = 101};
  TilePlans plans{RunTimeTiling::tiles(4)};
  plans.add(small.dry_run());
  plans.add(large.dry_run());
  EXPECT_EQ(plans.plan(typeid(MadeUp), small.problem(1024)).tiles.size(), 1u);
  EXPECT_EQ(plans.plan(typeid(MadeUp), large.problem(1024)).tiles.size(), 4u);
}

/// A run may use numbers of tokens that its dry run did not, such as shorter prompts or smaller batches.
TEST(TilePlans, OfADryRunServeTheRunForAnyNumberOfTokens) {
  const SwiGluMlp<OnMeta> planned{{}, 64, 192};
  const SwiGluMlp<OnCpu> module{{}, 64, 192};
  const LossHead<OnMeta> planned_head{{}, 300, 64};
  const LossHead<OnCpu> head{{}, 300, 64};
  Planner<OnMeta> dry_run(TilePlans(RunTimeTiling::tokens(16)), 100);
  plan_of(dry_run.context, planned);
  planned_head.plan(dry_run.context);
  for (const std::int64_t tokens : {1, 16, 17, 99, 100, 2000}) {
    Planner<OnMeta> expected(TilePlans(RunTimeTiling::tokens(16)), tokens);
    Planner<OnCpu> run(*dry_run.context.plans, tokens);
    EXPECT_EQ(plan_of(run.context, module), plan_of(expected.context, planned)) << tokens;
    EXPECT_EQ(head.plan(run.context), planned_head.plan(expected.context)) << tokens;
  }
}

TEST(TilePlans, OfAModuleWithoutADryRunThrowIfScratchMatters) {
  const SwiGluMlp<OnCpu> module{{}, 64, 192};
  Planner<OnCpu> untiled(TilePlans(), 100), tiled(TilePlans(RunTimeTiling::tokens(16)), 100);
  EXPECT_EQ(plan_of(untiled.context, module).tiles.size(), 1u);
  try {
    plan_of(tiled.context, module);
    FAIL() << "there is a plan";
  } catch (const LogicError& error) {
    EXPECT_EQ(std::string(error.what()),
              "tiling: the tiles of a module are asked for, for 100 tokens, and no dry run had this module; give the "
              "context the plans of a dry run (RunShape::plans, nn::add_dry_run)");
  }
  add_dry_run<OnMeta>(*tiled.context.plans, SwiGluMlp<OnMeta>{{}, 64, 192}, 2);
  EXPECT_NO_THROW(plan_of(tiled.context, module));
}

/// A module with a custom signature, which provides its own dry_run.
template <class L>
struct Unusual : ModuleTypes<L, SwiGluFields> {
  SwiGluMlp<L> mlp;
  std::shared_ptr<std::vector<std::size_t>> tiles;  // number of tiles of each run

  auto parameters() const { return mlp.parameters(); }
  tiling::Problem problem(std::int64_t tokens) const { return mlp.problem(tokens); }
  void dry_run(Context<L>& context, const typename SwiGluMlp<L>::Weights&, const typename SwiGluMlp<L>::Gradients&,
               int micro_batches) const {
    EXPECT_EQ(micro_batches, 1);
    tiles->push_back(plan_of(context, *this).tiles.size());
    context.template save<float>({tiles->back() > 1 ? 1 : 2});
  }
};

TEST(TilePlans, DryRunAModuleByItsOwnFunction) {
  const Unusual<OnMeta> module{{}, {{}, 64, 192}, std::make_shared<std::vector<std::size_t>>()};
  Planner<OnMeta> planner(TilePlans(RunTimeTiling::tiles(4)), 1024);
  EXPECT_EQ(plan_of(planner.context, module).tiles.size(), 4u);
  EXPECT_EQ(*module.tiles, (std::vector<std::size_t>{4, 1}));
}

}  // namespace
}  // namespace fsdp::nn
