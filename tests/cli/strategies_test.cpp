// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/tiling/policies.hpp>
#include "src/fsdp/core/strings.hpp"
#include "src/program/cli/fit.hpp"
#include "src/program/cli/replay.hpp"
#include "src/program/cli/stack_choice.hpp"
#include "support/choices.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::cli {
namespace {

ShardingChoice choice_of(std::string_view sharding, LayoutChoice layout = LayoutChoice::own) {
  ShardingChoice choice = parse_sharding(sharding);
  choice.layout = layout;
  return choice;
}

/// Exactly one of the two compiled run-time types accepts each strategy, for any layout, with and without offload.
TEST(ShardingOf, ExactlyOneRunTimeTypeHoldsEachStrategy) {
  for (const char* name :
       {"fsdp2", "fsdp2:no-reshard", "fsdp2:2", "zero1", "zero2", "zero3", "hybrid:2", "hybrid:2:zero1",
        "hybrid:2:no-reshard", "hybrid:2:full", "hybrid:2:full:zero3", "replicated", "fsdp2:pieces=8",
        "fsdp2:no-reshard:pieces=8", "fsdp2:2:pieces=8", "zero1:pieces=8", "zero2:pieces=8", "zero3:pieces=8"})
    for (const LayoutChoice layout : {LayoutChoice::own, LayoutChoice::owned}) {
      const ShardingChoice choice = choice_of(name, layout);
      EXPECT_EQ(takes<RunTimeAny>(choice) + takes<RunTimeHybridFull>(choice), 1) << name;
      EXPECT_EQ(takes<Offload<RunTimeAny>>(choice), takes<RunTimeAny>(choice)) << name;
    }
}

TEST(ShardingOf, PiecesSelectAReproducibleStrategy) {
  const auto chosen = sharding_of<RunTimeAny>(choice_of("fsdp2:deferred:pieces=6", LayoutChoice::owned));
  EXPECT_EQ(sharding::facts_of(chosen).pieces, 6);
  EXPECT_TRUE(chosen.rules().reduce_every_micro_batch);
  EXPECT_EQ(policy_text(chosen), "fsdp2:deferred:pieces=6:layout=owned");
  const auto grouped = sharding_of<RunTimeAny>(choice_of("fsdp2:4:pieces=6"));
  EXPECT_EQ(sharding::facts_of(grouped).pieces, 6);
  EXPECT_EQ(grouped.ranks_per_group(), 4);
  EXPECT_EQ(sharding::facts_of(sharding_of<RunTimeAny>(choice_of("fsdp2"))).pieces, 0);
}

TEST(ShardingKinds, ListEachStrategyOnceWithOptionalPieces) {
  EXPECT_EQ(sharding_kinds(),
            "fsdp2[:pieces=V] | fsdp2:no-reshard[:pieces=V] | zero1[:pieces=V] | zero2[:pieces=V] | zero3[:pieces=V] | "
            "fsdp2:K[:pieces=V] | hybrid:K[:INNER] | replicated | hybrid:K:full[:INNER]");
}

TEST(ShardingOf, ParametersReachTheStrategyInsideARunTimeStrategy) {
  const auto zero3 = sharding_of<RunTimeAny>(choice_of("zero3:persist=7:live=90:prefetch=2"));
  const sharding::Rules rules = zero3.rules();
  EXPECT_EQ(rules.facts.persistence_threshold, 7);
  EXPECT_EQ(rules.live_bound, 90);
  EXPECT_EQ(rules.prefetch_depth, 2);
  EXPECT_EQ(policy_text(zero3), "zero3:prefetch=2:persist=7:live=90");

  const auto hybrid = sharding_of<RunTimeAny>(choice_of("hybrid:4:zero2", LayoutChoice::owned));
  EXPECT_EQ(hybrid.ranks_per_group(), 4);
  EXPECT_EQ(hybrid.rules().hold, sharding::Hold::step);
  EXPECT_EQ(hybrid.rules().facts.across, sharding::Across::all_reduce);
  EXPECT_EQ(policy_text(hybrid), "hybrid:4:zero2:layout=owned");
  EXPECT_EQ(layout_of(hybrid).text(), "owned");

  const auto full = sharding_of<RunTimeHybridFull>(choice_of("hybrid:2:full:no-reshard"));
  EXPECT_EQ(full.rules().facts.across, sharding::Across::shard);
  EXPECT_EQ(policy_text(full), "hybrid:2:full:fsdp2:no-reshard");
  EXPECT_EQ(layout_of(full).text(), "per-parameter");

  EXPECT_FALSE(sharding_of<RunTimeAny>(choice_of("zero1", LayoutChoice::flat)).other_layout.has_value());
  EXPECT_EQ(policy_text(sharding_of<RunTimeHybridFull>(choice_of("hybrid:2:full:zero2", LayoutChoice::owned))),
            "hybrid:2:full:zero2:layout=owned");
}

/// Parses `tessera train` with these flags.
Train parsed(std::string_view flags) {
  std::vector<std::string> texts = {"tessera", "train"};
  for (const std::string_view word : split_at(flags, ' ')) texts.emplace_back(word);
  std::vector<const char*> words;
  for (const std::string& text : texts) words.push_back(text.c_str());
  return *std::get<Bound<Train>>(parse(static_cast<int>(words.size()), words.data()));
}

TEST(ShardingOfUnits, ReachesTheStrategyAndReturnsFromItsText) {
  const std::pair<std::string, std::string> cases[] = {
      {"--sharding fsdp2:prefetch=2 --layout flat --sharding-of embed_tokens|lm_head=replicated "
       "*norm*,role=vector,most=64=zero3:persist=64:layout=blocks:40",
       "fsdp2:prefetch=2:layout=flat:embed_tokens|lm_head=(replicated):*norm*,role=vector,most=64=(zero3:persist=64:"
       "layout=blocks:40):offload=optimizer"},
      {"--sharding hybrid:2:full:zero2 --sharding-of a=hybrid:2:full --sharding-of b=hybrid:2:full:zero3:layout=rows",
       "hybrid:2:full:zero2:a=(fsdp2):b=(zero3:layout=rows):offload=optimizer"}};
  for (const auto& [flags, text] : cases) {
    const ShardingChoice choice = parsed(flags).stack.sharding;
    EXPECT_EQ(takes<RunTimeAny>(choice) ? policy_text(sharding_of<Offload<RunTimeAny>>(choice))
                                        : policy_text(sharding_of<Offload<RunTimeHybridFull>>(choice)),
              text);
    EXPECT_EQ(recorded_stack(text, "bf16", "off").sharding, choice) << text;
    EXPECT_EQ(flags_of_configuration(parsed(flags)).size(), takes<RunTimeAny>(choice) ? 4u : 3u);
  }
  const auto parts = calls_of(sharding_of<RunTimeHybridFull>(parsed(cases[1].first).stack.sharding)).parts;
  EXPECT_EQ(parts.front().name, "hybrid:2:full:fsdp2");
  EXPECT_EQ(parts.back().name, "hybrid:2:full:zero2");
}

TEST(ShardingOfUnits, RefusesWhatNoRunHas) {
  const auto strategy_of = [](const std::string& flags) {
    const ShardingChoice choice = parsed(flags).stack.sharding;
    if (takes<RunTimeAny>(choice)) return calls_of(sharding_of<RunTimeAny>(choice));
    return calls_of(sharding_of<RunTimeHybridFull>(choice));
  };
  for (const auto& [flags, message] : std::vector<std::pair<std::string, std::string>>{
           {"--sharding-of embed_tokens", "is not a pattern and a strategy; write PATTERN=STRATEGY"},
           {"--sharding-of =zero1", "is not a pattern and a strategy"},
           {"--sharding-of a=zero1:layout=", "--sharding-of a=zero1:layout=: --layout '' is not known; known: default"},
           {"--sharding-of a=zero1:layout=blocks:0", "--layout blocks:0 is not known; did you mean 'blocks'?"},
           {"--layout blocks:many", "--layout blocks:many is not known; did you mean 'blocks'?"},
           {"--sharding-of a=zerro1", "--sharding-of a=zerro1: --sharding zerro1 is not known; did you mean 'zero1'?"},
           {"--sharding-of a,rule=table=zero1", "'rule=table' of the pattern 'a,rule=table' is not valid"},
           {"--sharding-of a=zero1:b=(zero2)", "has strategies of units inside; give each its own --sharding-of"},
           {"--sharding-of a=hybrid:2:full", "place optimizer state differently over groups of ranks"},
           {"--sharding hybrid:2:full --sharding-of a=hybrid:4:full", "place optimizer state differently"},
           {"--sharding hybrid:2 --sharding-of a=fsdp2:4", "form groups of"},
           {"--sharding-of a=fsdp2:prefetch=2",
            "sets prefetch=2, which is one for the whole module; set it in --sharding"},
           {"--sharding-of a=fsdp2:budget=auto", "sets budget=auto, which is one for the whole module"},
           {"--sharding-of a=zero2:pieces=2", "sets pieces=2, which is one for the whole module"}})
    EXPECT_INPUT_ERROR(strategy_of(flags), message);
}

/// The complete help is in docs/commands.
TEST(ShardingHelp, ListsTheStrategiesAndTheirOptions) {
  const std::string help = sharding_help();
  for (const char* part :
       {"fsdp2 | fsdp2:no-reshard | fsdp2:K | zero1 | ",
        " | hybrid:K | hybrid:K:full | replicated; K ranks per group. ",
        ". :prefetch=N (units gathered ahead) behind fsdp2, zero3 and hybrid:K",
        ". :budget=BYTES (most bytes of the slots", ") behind fsdp2, zero3 and hybrid:K",
        ". :deferred (reduce after the last micro-batch) behind fsdp2 and hybrid:K", ". :persist=N (", ") behind zero3",
        ". :pieces=N (a step is cut into N pieces, ", ") behind fsdp2, zero1, zero2 and zero3"})
    EXPECT_NE(help.find(part), std::string::npos) << part << "\n" << help;
}

TEST(ConfigurationFlags, ContainOnlyTheNonDefaultFlagsOfAConfiguration) {
  for (const std::string flags :
       {"--sharding fsdp2", "--sharding zero1 --recompute",
        "--sharding hybrid:2:deferred --layout flat --sequence ulysses:2 --grad-accum 4 --recompute --offload "
        "optimizer,inputs:0.5 --tiling tokens:64"}) {
    EXPECT_EQ(command_line(flags_of_configuration(parsed(flags))), flags);
    EXPECT_EQ(command_line(flags_of_configuration(parsed(flags + " --batch-size 16"))), flags);
  }
}

TEST(FitSpace, TriesTheEmbeddingAndTheHeadWholeNextToAnyShardedStrategy) {
  const auto variants = [](const std::string& found, bool given) {
    Train asked = parsed("--batch-size 16");
    train::FlagSet flags;
    bind(flags, asked);
    flags.find("sharding-of")->given = given;
    const FitSpace space(asked, flags, plan::known_cluster("epyc", 8));
    std::string text;
    for (const Train& other : space.beside(parsed("--sharding " + found))) text += space.flags(other) + "\n";
    return text;
  };
  const std::string whole = "--sharding zero2 --sharding-of 'embed_tokens|lm_head=replicated'\n";
  EXPECT_EQ(variants("zero2", false), whole);
  EXPECT_EQ(variants("zero2", true) + variants("replicated", false), "");
}

TEST(FloatWeights, SelectAStackOfBf16WithFloatWeights) {
  const Train train = parsed("--precision-of *norm*=fp32 --precision-of *,role=table=fp32");
  EXPECT_EQ(train.options.units.precision,
            (fsdp::FloatWeights{{{.names = "*norm*"}, {.names = "*", .role = Role::table}}, {true, true}}));
  EXPECT_EQ(precision_text(train.stack), "bf16+fp32");
  EXPECT_EQ(precision_text(recorded_stack("fsdp2", "bf16+fp32", "off")), "bf16+fp32");
  EXPECT_INPUT_ERROR(
      require_built(train.stack, {.comms = {"threads"}, .precisions = {"bf16"}}),
      "this program was built without float weights next to bf16 ones; leave it out, or build it with -D");
  require_built(train.stack, {.comms = {"threads"}, .precisions = {"bf16", "bf16+fp32"}});
  EXPECT_NE(text_of({.comms = {"threads"}, .precisions = {"bf16", "bf16+fp32"}})
                .find("--precision  bf16, bf16 with --precision-of\n"),
            std::string::npos);
  EXPECT_INPUT_ERROR(missing_parts_text(parsed("--precision fp32 --precision-of a=fp32").stack, {}),
                     "and --precision is fp32; take --precision bf16, or leave --precision-of out");
  EXPECT_INPUT_ERROR(parsed("--precision-of a=bf16"), "--precision-of a=bf16 does not end with =fp32");
  EXPECT_INPUT_ERROR(parsed("--precision-of a,rule=b=fp32"), "'rule=b' of the pattern");
}

// A policy's text equals its flag, so that it can be copied from a log to a command line.

TEST(PolicyText, APrecisionPrintsAsItsFlag) {
  EXPECT_EQ(policy_text<Bf16Wire<Bf16Mixed>>(), to_text(PrecisionChoice::bf16_wire));
  EXPECT_EQ(policy_text<Fp32>(), to_text(PrecisionChoice::fp32));
  EXPECT_EQ(policy_text<Bf16Mixed>(), to_text(PrecisionChoice::bf16));
}

TEST(PolicyText, ATilingPrintsAsItsFlag) {
  for (const char* flag : {"off", "tiles:4", "tokens:512", "budget:1000000", "budget:auto"})
    EXPECT_EQ(policy_text(parse_tiling(flag)), flag);
  EXPECT_EQ(policy_text(tiling::Untiled{}), "off");
  EXPECT_EQ(policy_text(tiling::StaticTiles<3>{}), "tiles:3");
  EXPECT_EQ(policy_text(tiling::TokensPerTile<64>{}), "tokens:64");
  EXPECT_EQ(policy_text(tiling::StaticBudget<2048>{}), "budget:2048");
  EXPECT_EQ(policy_text(tiling::Budget{.bytes = 5}), "budget:5");
}

}  // namespace
}  // namespace fsdp::cli
