// SPDX-License-Identifier: Apache-2.0
// Properties of individual optimizers on shards. The kit's suite tests the common properties
// (tests/testing/optimizer_test.cpp).
#include <gtest/gtest.h>

#include <support/small_llama.hpp>

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
                           "zero2/layout=blocks:elements=40/run-time"}) {
    const RunResults owners = run(stack, with(muon(), uneven_options(3)));
    expect_same_bits(owners, replicas, stack);
  }
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
}

}  // namespace
}  // namespace fsdp::test
