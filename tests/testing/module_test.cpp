// SPDX-License-Identifier: Apache-2.0
// The module suite: built-in modules pass, and the flaws of wrong modules are reported in words.
#include <tessera/fsdp/testing/module.hpp>

#include <examples/19_own_sequence/causal_mean.hpp>
#include <tessera/fsdp/nn/transformer_block.hpp>

#include "failures.hpp"
#include "wrong_modules.hpp"

namespace fsdp::testing {
namespace {

struct OurMlp {
  template <class L>
  static nn::SwiGluMlp<L> make(const ModuleSizes& sizes) {
    return {{}, sizes.hidden, 3 * sizes.hidden + 1};
  }
};
struct OurBlock {
  template <class L>
  static nn::TransformerBlock<L> make(const ModuleSizes& sizes) {
    nn::ResidualAttention<L> attention{{}, sizes.hidden, 3, 1, 4, 1e-2f};
    attention.biases = attention.head_norms = sizes.length > 4;  // only at some sizes
    attention.window = 4;
    return {{}, attention, {{}, sizes.hidden, 2 * sizes.hidden, 1e-2f}};
  }
  template <class L>
  static nn::RotaryTable share(nn::Context<L>& context, const ModuleSizes& sizes) {
    const auto table = context.template save<float>({sizes.length, 4});  // [S, d]
    device::enqueue(context.stream, device::RotaryTable{.theta = 100.0f, .table = table});
    return {table};
  }
};
struct OurMean {
  template <class L>
  static mixer::CausalMean<L> make(const ModuleSizes& sizes) {
    return {{}, sizes.hidden, 6};
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(OurMlp, ModuleSuite, OurMlp);
INSTANTIATE_TYPED_TEST_SUITE_P(OurBlock, ModuleSuite, OurBlock);
INSTANTIATE_TYPED_TEST_SUITE_P(OurMean, ModuleSuite, OurMean);

TEST(WrongModules, AWrongGradientSignIsFound) {
  expect_sentence(failures_of(check_module_gradients<TestedWrongMlp<WrongSign>>),
                  "backward gives the derivatives of forward", "1 x 5 tokens, hidden 12",
                  "the gradient of mlp.up_proj");
}
TEST(WrongModules, OverwrittenInsteadOfAccumulatedGradientsAreFound) {
  expect_sentence(failures_of(check_module_adds<TestedWrongMlp<Overwrites>>), "gradients of micro-batches add up",
                  "1 x 5 tokens", "the gradient of mlp.down_proj.weight differs by");
}
TEST(WrongModules, ReadsOfUninitializedMemoryAreFound) {
  expect_sentence(failures_of(check_module_adds<TestedWrongMlp<ReadsWhatNobodyWrote>>), "gradients of micro-batches",
                  "1 x 5 tokens", "y holds numbers that are not finite: memory was read that nobody had written");
}
TEST(WrongModules, OutOfBoundsWritesAreFound) {
  constexpr auto asked = "a module writes y, dx and the gradients of its weights, and nothing else";
  expect_sentence(failures_of(check_module_adds<TestedWrongMlp<WritesBehind>>), asked, "1 x 5 tokens",
                  "memory beside x, y or dy was written");
  expect_sentence(failures_of(check_module_adds<TestedWrongMlp<ChangesAWeight>>), asked, "1 x 5 tokens",
                  "a weight was changed");
}
TEST(WrongModules, TemporaryMemoryKeptAfterTheCallIsFound) {
  expect_sentence(failures_of(check_module_adds<TestedWrongMlp<Leaks>>), "forward gives temporary memory back",
                  "1 x 5 tokens", "L::Frame");
}
TEST(WrongModules, ExceptionsAreReportedWithTheCase) {
  constexpr auto asked = "a module runs at every size without an error";
  for (const auto& check :
       {check_module_adds<TestedWrongMlp<Throws>>, check_module_costs<TestedWrongMlp<Throws>, Fp32>})
    expect_sentence(failures_of(check), asked, "1 x 5 tokens, hidden 12, tiling off", "an error: no such size");
}
TEST(WrongModules, ResultsThatDependOnTilesAreFound) {
  expect_sentence(failures_of(check_module_tilings<TestedWrongMlp<TilesDiffer>, Fp32>),
                  "are those of the untiled module", "tiling tokens:3", "y differs by");
}
TEST(WrongModules, AStageThatOmitsARangeIsFound) {
  expect_sentence(failures_of(check_module_stages<TestedHalfMean>), "compute what the whole block computes",
                  "weights side by side, ranks that share the rows: 1, parts of the middle: 2", "y differs by");
}
TEST(WrongModules, MemoryThatTheDryRunMissesIsFound) {
  expect_sentence(failures_of(check_module_costs<TestedWrongMlp<HidesMemory>, Fp32>), "a dry run (device Meta) counts",
                  "1 x 5 tokens", "bytes of the arena at its peak");
}

}  // namespace
}  // namespace fsdp::testing
