// SPDX-License-Identifier: Apache-2.0
// Properties of individual optimizers on shards. The kit's suite tests the common properties
// (tests/testing/optimizer_test.cpp).
#include <gtest/gtest.h>

#include <support/small_llama.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {
namespace {

optim::RunTimeOptimizer muon() { return {optim::Muon{}}; }

RunOptions with(const optim::RunTimeOptimizer& optimizer, RunOptions options) {
  options.optimizer = optimizer;
  return options;
}

std::int64_t elements_of(const Values& values) {
  std::int64_t sum = 0;
  for (const auto& [name, list] : values) sum += std::ssize(list);
  return sum;
}

TEST(Optimizers, AllocateOnlyTheirOwnStates) {
  const RunResults of_sgd =
      run("replicated", with({optim::Sgd{.momentum = 0.9, .nesterov = true, .weight_decay = 0.1}}, uneven_options(1)));
  EXPECT_EQ(elements_of(of_sgd.states), elements_of(of_sgd.weights));
  const RunResults without = run("replicated", with({optim::Sgd{.momentum = 0}}, uneven_options(1)));
  EXPECT_TRUE(without.states.empty());
  EXPECT_EQ(used_bytes(without, device::MemoryKind::optimizer), 0);
  const RunResults of_muon = run("replicated", with(muon(), uneven_options(1)));
  EXPECT_EQ(of_muon.states.count("model.layers.0.mlp.up_proj.weight.momentum"), 1u);
  EXPECT_EQ(of_muon.states.count("model.layers.0.mlp.up_proj.weight.exp_avg"), 0u);
  EXPECT_EQ(of_muon.states.count("model.embed_tokens.weight.exp_avg_sq"), 1u);
}

/// Gradients are bit-identical in both runs, and the owner of a matrix computes the same update as every replica.
/// Blocks cut the parameters that AdamW steps, such as the embedding.
TEST(Muon, OnWholeMatricesIsBitIdenticalToReplicas) {
  const RunResults replicas = run("replicated", with(muon(), uneven_options(3)));
  for (const auto stack : {"zero2/layout=owned/run-time", "zero3/layout=owned/run-time", "fsdp2/layout=blocks/run-time",
                           "zero2/layout=blocks:40/run-time"}) {
    const RunResults owners = run(stack, with(muon(), uneven_options(3)));
    expect_same_bits(owners, replicas, stack);
  }
}

/// 6 heads and 2 key-value heads, so that on 4 ranks some ranks have none of a tensor.
RunOptions with_heads(RunOptions options) {
  options.config.heads = 6, options.config.kv_heads = 2;
  return with({optim::Muon{.per_head = true}}, options);
}

/// Blocks cut between and inside of q, k and v, which are one matrix in the gathered slot.
TEST(Muon, PerHeadIsBitIdenticalToReplicasWhereverBlocksCutHeads) {
  for (const int ranks : {2, 3, 4}) {
    const RunOptions options = with_heads(uneven_options(ranks));
    const RunResults replicas = run("replicated", options);
    for (const auto stack :
         {"fsdp2/layout=blocks/run-time", "zero2/layout=blocks:40/run-time", "zero3/layout=owned/run-time"}) {
      SCOPED_TRACE(ranks);
      const RunResults found = run(stack, options);
      expect_same_bits(found, replicas, stack);
      for (const Memory& memory : found.memory) EXPECT_EQ(memory.used, memory.planned) << stack;
    }
    RunOptions whole = options;
    whole.optimizer = muon();
    EXPECT_NE(run("replicated", whole).losses, replicas.losses);
  }
  const RunOptions options = with_heads(uneven_options(4));
  expect_same_bits(run("hybrid:2:full/layout=blocks/run-time", options),
                   run("hybrid:2/layout=owned/run-time", options));
}

TEST(Muon, PerHeadInPiecesIsBitIdenticalAndResumesOnAnyNumberOfRanks) {
  constexpr int pieces = 4;
  const auto options_on = [&](int ranks, int steps) {
    RunOptions options =
        with_heads(with_steps(steps, uneven_options(ranks, sharding::micro_batches_of(pieces, ranks))));
    options.most_sequences = most_dealt(12, pieces, 1);
    return options;
  };
  const auto stack = "fsdp2:pieces=4/layout=blocks/run-time";
  const RunResults expected = run("fsdp2:pieces=4/layout=owned/run-time", options_on(1, 4));
  for (const int saving : {2, 3, 4}) {
    const TemporaryFolder folder;
    RunOptions options = options_on(saving, 2);
    options.save_to = folder.path();
    run(stack, options);
    for (const int ranks : {1, 2, 3, 4}) {
      options = options_on(ranks, 4);
      options.resume = folder.path();
      const RunResults found = run(stack, options);
      EXPECT_EQ(found.losses, (std::vector<double>{expected.losses.begin() + 2, expected.losses.end()}));
      expect_same_tensors(found.weights, expected.weights);
      expect_same_tensors(found.states, expected.states);
    }
  }
}

/// The 6 heads of q are more elements than a chunk of an offloaded tensor, which has 5 of them.
TEST(Muon, PerHeadInHostMemoryStepsWholeHeadsAtATime) {
  RunOptions options = with_heads(with_steps(1, uneven_options(1)));
  options.config.layers = 1, options.config.hidden_size = 520, options.config.head_dim = 100;
  const RunResults found = run("fsdp2/layout=blocks/run-time/offload", options);
  expect_same_bits(found, run("fsdp2/layout=blocks/run-time", options));
  expect_planned_bytes(found);
}

TEST(Muon, AddsNoCollective) {
  const auto stack = "fsdp2/layout=owned/run-time";
  const RunResults with_adamw = run(stack, uneven_options(3));
  const RunResults with_muon = run(stack, with(muon(), uneven_options(3)));
  expect_same_collectives(with_muon, with_adamw);
  const auto copied = [](const RunResults& results) {  // owners differ, since Muon's work does
    std::int64_t sum = 0;
    for (const Memory& memory : results.memory) sum += memory.copied_bytes;
    return sum;
  };
  EXPECT_EQ(copied(with_muon), copied(with_adamw));
}

TEST(Muon, OnShardedMatricesIsRefused) {
  for (const auto stack : {"fsdp2", "fsdp2/layout=rows/run-time"})
    EXPECT_INPUT_ERROR(run(stack, with(muon(), uneven_options(2))), "the optimizer muon works on whole matrices");
  EXPECT_INPUT_ERROR(run("fsdp2", with_heads(uneven_options(4))),
                     "the optimizer muon works on blocks of 114 elements, and the strategy cuts inside of one of "
                     "\"model.layers.0.self_attn.q_proj.weight\" over ranks; take a layout that keeps them whole");
}

}  // namespace
}  // namespace fsdp::test
