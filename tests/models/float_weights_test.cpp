// SPDX-License-Identifier: Apache-2.0
// A Llama with some weights in float next to bf16.
#include <tessera/fsdp/precision/by_tensor.hpp>

#include <gtest/gtest.h>

#include <support/small_llama.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {
namespace {

constexpr const char* mixed = "fsdp2/bf16+fp32";

RunOptions with_floats(const std::string& names, RunOptions options) {
  options.units.precision = PrecisionBy{on(names, Fp32{}), otherwise(Bf16Mixed{})};
  return options;
}

TEST(FloatWeights, WithoutPatternsResultsAreThoseOfBf16) {
  const RunOptions options = uneven_options(2, 2);
  expect_same_bits(run(mixed, options), run("fsdp2/bf16", options));
}

TEST(FloatWeights, NormsAndTheHeadTrainAsInFloat) {
  for (const bool tied : {false, true}) {
    RunOptions options = uneven_options(3);
    options.config.tied = tied;
    options.logits_of = some_windows(2, 7, options.config.vocab_size);
    options.begun = 3;
    const RunResults expected = run("fsdp2", options), bf16 = run("fsdp2/bf16", options);
    const std::string head = tied ? "embed_tokens" : "lm_head";
    for (const std::string& names : {std::string("*norm*"), head, "*norm*|" + head}) {
      RunOptions floats = with_floats(names, options);
      const RunResults found = run(mixed, floats);
      expect_planned_bytes(found);
      EXPECT_LE(largest_relative(found.losses, expected.losses), 0.01) << names;
      EXPECT_NE(found.losses, bf16.losses) << names;
      floats.units.recompute = true;
      EXPECT_EQ(run(mixed, floats).losses, found.losses) << names;
      std::cout << names << ": loss " << found.losses.back() << ", bf16 " << bf16.losses.back() << ", fp32 "
                << expected.losses.back() << "\n";
    }
  }
}

TEST(FloatWeights, AreSavedAndResumedUnderAnotherSelection) {
  const TemporaryFolder folder;
  run(mixed, with_floats("*norm*|lm_head", saving(2, folder.path())));
  const RunOptions after = resuming(3, 10, folder.path());
  const RunResults expected = run("fsdp2", after), found = run(mixed, with_floats("model.norm.weight", after));
  EXPECT_LE(largest_relative(found.losses, expected.losses), 0.01);
}

TEST(FloatWeights, OfModulesThatComputeIn16BitsAreRefused) {
  EXPECT_INPUT_ERROR(run(mixed, with_floats("*gate_proj*", uneven_options(2))),
                     "precision: 'model.layers.0.mlp.gate_proj.weight' of block 0 is selected to be float, and its "
                     "module computes with it in 16 bits; weights that can be float are 'lm_head.weight' and ");
  EXPECT_INPUT_ERROR(run("fsdp2/bf16", with_floats("*norm*", uneven_options(2))), "precision: ");
}

}  // namespace
}  // namespace fsdp::test
