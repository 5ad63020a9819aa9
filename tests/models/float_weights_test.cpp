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

/// Trains with float norms, embedding and head, and one more choice. Without that choice losses differ by at most
/// `within`, relatively; with all weights in bf16 they differ by at most 1 %.
TEST(FloatWeights, CombineWithEveryOtherChoice) {
  struct Case {
    const char* name;
    double within;
    void (*choose)(RunOptions&);
    const char* stack = mixed;
  };
  constexpr Case cases[] = {
      {"shared sequences", 2e-3, [](RunOptions& o) { o.ranks_per_sequence = 2, o.most_sequences *= 2; }},
      {"recomputation", 0, [](RunOptions& o) { o.units.recompute = true; }},
      {"inputs in host memory", 0, [](RunOptions& o) { o.units.recompute = true, o.units.offload_inputs = 0.5; }},
      {"optimizer in host memory", 0, [](RunOptions&) {}, "fsdp2/offload/bf16+fp32"},
      {"tiles", 2e-3, [](RunOptions& o) { o.tiling = tiling::RunTimeTiling::tiles(3); }},
      {"small float tensors in one group", 0, [](RunOptions& o) { o.units.join_float_below = 64; }},
  };
  for (const bool lora : {false, true})
    for (const bool tied : {false, true}) {
      RunOptions options = with_steps(4, uneven_options(2));
      options.config = {.vocab_size = 36,
                        .hidden_size = 20,
                        .intermediate_size = 28,
                        .layers = 2,
                        .heads = 4,
                        .kv_heads = 2,
                        .head_dim = 6,
                        .tied = tied};
      if (lora) options.config.lora = {.rank = 2};
      options.batch = deal(some_windows(12, 8, options.config.vocab_size));
      options.sequence_length = 8;
      options.collects = false;
      const RunOptions floats = with_floats("*norm*|embed_tokens|lm_head", options);
      const RunResults plain = run(mixed, floats);
      for (const Case& each : cases) {
        SCOPED_TRACE(std::string(each.name) + (lora ? ", lora" : "") + (tied ? ", tied" : ""));
        RunOptions own = floats, bf16 = options;
        each.choose(own), each.choose(bf16);
        const RunResults found = run(each.stack, own), without = run(each.stack, bf16);
        expect_planned_bytes(found);
        EXPECT_LE(largest_relative(found.losses, plain.losses), each.within);
        EXPECT_LE(largest_relative(found.losses, without.losses), 0.01);
        EXPECT_NE(found.losses, without.losses);
      }
    }
}

/// A part for each element type: in bf16 main and rounded weights, 6 bytes each next to 4 of its gradient; in float 4.
TEST(FloatWeights, AreAPartOfThePlan) {
  using device::MemoryKind;
  const RunOptions options = uneven_options(2);
  EXPECT_TRUE(run(mixed, options).parts.empty());
  const RunResults found = run(mixed, with_floats("*norm*", options));
  ASSERT_EQ(found.parts.size(), 2u);
  const plan::PartPlan &narrow = found.parts[0], &wide = found.parts[1];
  EXPECT_EQ(narrow.name + " " + wide.name, "all all");
  EXPECT_TRUE(narrow.dtype == DType::bf16 && wide.dtype == DType::f32);
  EXPECT_EQ(narrow.tensors, 23);
  EXPECT_EQ(wide.tensors, 7);
  EXPECT_EQ(2 * narrow.weight_bytes, 3 * narrow.gradient_bytes);
  EXPECT_EQ(wide.weight_bytes, wide.gradient_bytes);
  EXPECT_EQ(narrow.weight_bytes + wide.weight_bytes + narrow.optimizer_bytes + wide.optimizer_bytes,
            used_bytes(found, MemoryKind::weights) + used_bytes(found, MemoryKind::optimizer));
  std::int64_t norm = -narrow.gathered_bytes - narrow.reduced_bytes - wide.gathered_bytes - wide.reduced_bytes;
  for (const comm::Op op : comm::all_ops) norm += found.traffic[1].world[op].bytes;
  EXPECT_TRUE(norm > 0 && norm < 128) << norm;
  EXPECT_LT(wide.gathered_bytes, 3 * wide.reduced_bytes);
}

/// The logits of all tokens at once, and with a KV cache after three; the tolerance is two roundings to bf16.
TEST(FloatWeights, GenerateAsOneOfOnePrecision) {
  const TemporaryFolder folder;
  run("fsdp2", saving(2, folder.path()));
  RunOptions options = with_steps(1, uneven_options(2));
  options.model = folder.path() / "step-00000005";  // norms are not ones
  options.logits_of = some_windows(2, 7, options.config.vocab_size);
  options.begun = 3;
  const RunResults fp32 = run("fsdp2", options), bf16 = run(mixed, options);
  for (const char* const names : {"*norm*", "lm_head", "*norm*|embed_tokens|lm_head"}) {
    const RunResults found = run(mixed, with_floats(names, options));
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_LE(relative(found.logits[i], fp32.logits[i]), 0x1p-7) << names;
      EXPECT_LE(relative(found.continued_logits[i], found.logits[i]), 0x1p-7) << names;
      EXPECT_NE(found.logits[i], bf16.logits[i]) << names;
      EXPECT_LE(relative(found.logits[i], fp32.logits[i]), 1.1 * relative(bf16.logits[i], fp32.logits[i])) << names;
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
