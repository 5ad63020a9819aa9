// SPDX-License-Identifier: Apache-2.0
#include "src/program/cli/stack_lines.hpp"

#include <gtest/gtest.h>

#include <tessera/fsdp/buffer/owned.hpp>
#include <tessera/fsdp/buffer/rows.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

#include "support/choices.hpp"

namespace fsdp::cli {
namespace {

ShardingChoice sharding_of(const char* name, const char* layout = "default") {
  ShardingChoice choice = parse_sharding(name);
  choice.layout = parse_layout(layout);
  return choice;
}

// The spelled text is compiled here, and is the strategy that the flags name.
#define EXPECT_SPELLED(type, value, choice, offload, text)                           \
  {                                                                                  \
    EXPECT_EQ(spelled_sharding(choice, offload), (Spelled{WITHOUT(#type), #value})); \
    const WITH type strategy value;                                                  \
    EXPECT_EQ(policy_text(strategy), text);                                          \
  }
#define WITH(...) __VA_ARGS__
#define WITHOUT(text) std::string(text).substr(1, sizeof(text) - 3)  // the parentheses around a type

TEST(SpelledSharding, IsTheCodeOfWhatTheFlagsName) {
  constexpr auto none = OffloadChoice::none, offload = OffloadChoice::optimizer;
  EXPECT_SPELLED((fsdp::FullyShard<>), , sharding_of("fsdp2"), none, "fsdp2");
  EXPECT_SPELLED((fsdp::FullyShard<fsdp::ReshardAfterForward::no>), , sharding_of("fsdp2:no-reshard"), none,
                 "fsdp2:no-reshard");
  EXPECT_SPELLED((fsdp::Zero1), , sharding_of("zero1", "flat"), none, "zero1");
  EXPECT_SPELLED((fsdp::Replicated), , sharding_of("replicated"), none, "replicated");
  EXPECT_SPELLED((fsdp::WithLayout<fsdp::Zero2, fsdp::buffer::PerParameter>), , sharding_of("zero2", "per-parameter"),
                 none, "zero2:layout=per-parameter");
  EXPECT_SPELLED((fsdp::HybridShard<fsdp::FullyShard<>>), {.group = 2}, sharding_of("hybrid:2"), none, "hybrid:2");
  EXPECT_SPELLED((fsdp::Offload<fsdp::HybridShard<fsdp::WithLayout<fsdp::Zero1, fsdp::buffer::Rows>>>), {{.group = 4}},
                 sharding_of("hybrid:4:zero1", "rows"), offload, "hybrid:4:zero1:layout=rows:offload=optimizer");
}

#undef EXPECT_SPELLED
// Commas of values are the macro's: these have two values.
TEST(SpelledSharding, NamesNumbersThatAreNotTheUsual) {
  EXPECT_EQ(spelled_sharding(sharding_of("fsdp2:2:deferred:prefetch=3"), OffloadChoice::none).value,
            "{.prefetch_depth = 3, .reduce = fsdp::ReduceGradients::last_micro_batch, .group = 2}");
  EXPECT_EQ(policy_text(fsdp::FullyShard<fsdp::ReshardAfterForward::to_group>{
                .prefetch_depth = 3, .reduce = fsdp::ReduceGradients::last_micro_batch, .group = 2}),
            "fsdp2:2:deferred:prefetch=3");
  EXPECT_EQ(
      spelled_sharding(sharding_of("hybrid:2:full:zero3:persist=7:live=9", "owned"), OffloadChoice::none),
      (Spelled{"fsdp::HybridShard<fsdp::WithLayout<fsdp::Zero3, fsdp::buffer::Owned>, fsdp::OptimizerAcross::sharded>",
               "{.group = 2, .inner = {{.persistence_threshold = 7, .live_bound = 9}}}"}));
  const fsdp::HybridShard<fsdp::WithLayout<fsdp::Zero3, fsdp::buffer::Owned>, fsdp::OptimizerAcross::sharded> same{
      .group = 2, .inner = {{.persistence_threshold = 7, .live_bound = 9}}};
  EXPECT_EQ(policy_text(same), "hybrid:2:full:zero3:persist=7:live=9:layout=owned");
}

TEST(SpelledSharding, NamesABudgetAndWhatMemoryLeaves) {
  EXPECT_EQ(spelled_sharding(sharding_of("fsdp2:budget=1KiB"), OffloadChoice::none).value, "{.budget = 1024}");
  EXPECT_EQ(spelled_sharding(sharding_of("zero3:budget=auto"), OffloadChoice::none).value,
            "{.budget = fsdp::memory_left}");
  EXPECT_EQ(policy_text(fsdp::Zero3{.budget = fsdp::memory_left}), "zero3:budget=auto");
}

TEST(SpelledSharding, OfPiecesIsTheStrategyInsideAndTheirNumber) {
  EXPECT_EQ(spelled_sharding(sharding_of("fsdp2:pieces=8"), OffloadChoice::none),
            (Spelled{"fsdp::Reproducible<fsdp::FullyShard<>>", "{{}, 8}"}));
  const fsdp::Reproducible<fsdp::FullyShard<>> plain{{}, 8};
  EXPECT_EQ(policy_text(plain), "fsdp2:pieces=8");
  EXPECT_EQ(spelled_sharding(sharding_of("zero3:prefetch=2:pieces=8", "owned"), OffloadChoice::optimizer),
            (Spelled{"fsdp::Offload<fsdp::WithLayout<fsdp::Reproducible<fsdp::Zero3>, fsdp::buffer::Owned>>",
                     "{{{{.prefetch_depth = 2}, 8}}}"}));
  const fsdp::Offload<fsdp::WithLayout<fsdp::Reproducible<fsdp::Zero3>, fsdp::buffer::Owned>> inside{
      {{{.prefetch_depth = 2}, 8}}};
  EXPECT_EQ(policy_text(inside), "zero3:prefetch=2:pieces=8:layout=owned:offload=optimizer");
}

TEST(StackLines, AreAProgramWithEveryPolicyThatWasAskedFor) {
  EXPECT_EQ(
      stack_lines({.sharding = sharding_of("zero3:prefetch=2"),
                   .precision = PrecisionChoice::fp32,
                   .tiling = parse_tiling("tokens:256"),
                   .comm = parse_comm("nccl")}),
      "  #include <tessera/comm/nccl.hpp>\n"
      "  #include <tessera/trainer/train_main.hpp>\n"
      "  using Stack = fsdp::Stack<fsdp::Zero3, fsdp::comm::Nccl<>, fsdp::Fp32, fsdp::tiling::TokensPerTile<256>>;\n"
      "  int main(int argc, char** argv) {\n"
      "    return fsdp::train_main<fsdp::Llama<Stack>>(argc, argv, {.prefetch_depth = 2}); }");
  EXPECT_TRUE(stack_lines({.sharding = sharding_of("hybrid:2:zero1", "rows"), .tiling = {}, .comm = parse_comm("mpi")})
                  .starts_with("  #include <tessera/comm/mpi.hpp>\n"
                               "  #include <tessera/fsdp/buffer/rows.hpp>\n"
                               "  #include <tessera/trainer/train_main.hpp>\n"
                               "  using Stack = fsdp::Stack<fsdp::HybridShard<fsdp::WithLayout<fsdp::Zero1, "
                               "fsdp::buffer::Rows>>, fsdp::comm::Mpi<>, fsdp::Bf16Mixed, fsdp::tiling::Untiled>;\n"));
  const auto ends = [](const char* tiling, const char* comm, PrecisionChoice precision) {
    const std::string text =
        stack_lines({.sharding = {}, .precision = precision, .tiling = parse_tiling(tiling), .comm = parse_comm(comm)});
    return text.substr(text.find("FullyShard<>") + 14);
  };
  const std::string main =
      "  int main(int argc, char** argv) {\n    return fsdp::train_main<fsdp::Llama<Stack>>(argc, argv";
  EXPECT_EQ(ends("budget:auto", "mpi", PrecisionChoice::bf16_wire),
            "fsdp::comm::Mpi<>, fsdp::Bf16Wire<fsdp::Bf16Mixed>, fsdp::tiling::RunTimeTiling>;\n" + main +
                ", {}, fsdp::tiling::RunTimeTiling::budget_of_memory()); }");
  EXPECT_EQ(ends("off", "threads:2", PrecisionChoice::bf16),
            "fsdp::comm::Threads<>, fsdp::Bf16Mixed, fsdp::tiling::Untiled>;\n" + main + "); }");
  EXPECT_EQ(ends("budget:1MiB", "self", PrecisionChoice::bf16),
            "fsdp::comm::Self<>, fsdp::Bf16Mixed, fsdp::tiling::StaticBudget<1048576>>;\n" + main + "); }");
}

TEST(StackLines, TakeTheFlagOfSequencesWhereItWasGiven) {
  const StackChoice choice{.sharding = sharding_of("zero2"), .tiling = {}, .comm = parse_comm("threads:2")};
  EXPECT_NE(stack_lines(choice, true).find("fsdp::Bf16Mixed, fsdp::tiling::Untiled, fsdp::Ulysses>;\n"),
            std::string::npos);
}

TEST(CmakeName, IsTheOneOfTesseraStacks) {
  const auto name = [](const char* sharding, OffloadChoice offload = OffloadChoice::none) {
    return cmake_name(
        {.sharding = parse_sharding(sharding), .offload = offload, .tiling = {}, .comm = parse_comm("mpi")});
  };
  EXPECT_EQ(name("fsdp2:no-reshard"), "fsdp2/mpi/bf16");
  EXPECT_EQ(name("fsdp2:2"), "fsdp2_group/mpi/bf16");
  EXPECT_EQ(name("hybrid:2:full:zero3"), "hybrid_full/mpi/bf16");
  EXPECT_EQ(name("zero2", OffloadChoice::optimizer), "zero2_offload/mpi/bf16");
  EXPECT_EQ(name("replicated", OffloadChoice::optimizer), std::nullopt);
}

}  // namespace
}  // namespace fsdp::cli
