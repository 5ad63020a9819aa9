// SPDX-License-Identifier: Apache-2.0
#include <fsdp/models/llama_config.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/listed_llama.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp {
namespace {

using test::golden;

const std::string good = R"({"model_type":"llama","vocab_size":256,"hidden_size":32,"intermediate_size":88,
  "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"rms_norm_eps":1e-5)";

LlamaConfig parse(const std::string& more) { return LlamaConfig::parse(good + more + "}", "config.json"); }

LlamaConfig changed(const std::function<void(LlamaConfig&)>& change) {
  LlamaConfig config = llama_preset("tiny");
  change(config);
  return config;
}

TEST(LlamaPreset, EveryOneIsValidAndTheFirstIsTheSmallest) {
  std::int64_t previous = 0;
  for (const std::string& name : llama_preset_names()) {
    const LlamaConfig config = llama_preset(name);
    EXPECT_NO_THROW(config.validate()) << name;
    EXPECT_GT(parameter_count(test::ListedLlama(config)), previous) << name;
    previous = parameter_count(test::ListedLlama(config));
  }
}

TEST(LlamaPreset, AnUnknownOneIsAnErrorWithTheNearestName) {
  EXPECT_INPUT_ERROR(llama_preset("smal"), "did you mean 'small'?");
}

TEST(LlamaConfig, ReadsTheGoldenFolders) {
  EXPECT_EQ(LlamaConfig::read(golden("llama-odd")), (LlamaConfig{.vocab_size = 256,
                                                                 .hidden_size = 21,
                                                                 .intermediate_size = 35,
                                                                 .layers = 3,
                                                                 .heads = 3,
                                                                 .kv_heads = 1,
                                                                 .head_dim = 6,
                                                                 .rms_norm_eps = 1e-5,
                                                                 .rope_theta = 10000.0,
                                                                 .tied = false,
                                                                 .max_position_embeddings = 4096}));
}

TEST(LlamaConfig, WritesWhatItReads) {
  LlamaConfig config = llama_preset("small");
  config.tied = true;
  config.rope_theta = 123456.789;
  config.rms_norm_eps = 1.1e-6;
  EXPECT_EQ(LlamaConfig::parse(config.write(), "here"), config);
}

TEST(LlamaConfig, WritesTheGoldenFileToTheLastKey) {
  const LlamaConfig config = LlamaConfig::read(golden("llama-gqa"));
  EXPECT_EQ(config.write(), test::content_of(golden("llama-gqa") / "config.json"));
}

TEST(LlamaConfig, AbsentKeysHaveHuggingFacesDefaults) {
  const LlamaConfig config = parse(R"(,"rope_scaling":null,"head_dim":null,"num_labels":7)");
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_FALSE(config.tied);
  EXPECT_EQ(parse(R"(,"rope_parameters":{"rope_type":"default","rope_theta":500000.0})").rope_theta, 500000.0);
}

TEST(LlamaConfig, RefusesByNameWhatItCannotCompute) {
  EXPECT_INPUT_ERROR(parse(R"(,"hidden_act":"gelu")"), R"("hidden_act" is "gelu"; only "silu" is supported)");
  EXPECT_INPUT_ERROR(parse(R"(,"attention_bias":true)"), "attention_bias");
  EXPECT_INPUT_ERROR(parse(R"(,"mlp_bias":true)"), "mlp_bias");
  EXPECT_INPUT_ERROR(parse(R"(,"rope_scaling":{"rope_type":"yarn","factor":4})"), "yarn");
  EXPECT_INPUT_ERROR(parse(R"(,"rope_scaling":{"type":"linear","factor":2})"), "linear");
  EXPECT_INPUT_ERROR(parse(R"(,"rope_parameters":{"rope_type":"llama3"})"), "llama3");
  EXPECT_INPUT_ERROR(parse(R"(,"rope_scaling":7)"), "must be an object");
  EXPECT_INPUT_ERROR(parse(R"(,"quantization_config":{"bits":4})"), "quantization_config");
  EXPECT_INPUT_ERROR(LlamaConfig::parse(R"({"model_type":"qwen3"})", "f"), R"("model_type" is "qwen3")");
  EXPECT_INPUT_ERROR(LlamaConfig::parse("{}", "f"), "\"model_type\" is missing");
}

TEST(LlamaConfig, MalformedFilesAreInputErrors) {
  EXPECT_INPUT_ERROR(LlamaConfig::parse("", "f"), "not valid JSON");
  EXPECT_INPUT_ERROR(LlamaConfig::parse("[]", "f"), "not a JSON object");
  EXPECT_INPUT_ERROR(LlamaConfig::parse(good, "f"), "not valid JSON");
  EXPECT_INPUT_ERROR(parse(R"(} trailing {)"), "not valid JSON");
  EXPECT_INPUT_ERROR(LlamaConfig::parse(good + std::string("}\0{}", 4), "f"), "a NUL byte");
  const std::string said = test::input_error_of([] { parse(",\"x\":1" + std::string(500'000, '0') + "e999"); });
  EXPECT_LT(said.size(), 500u);
  EXPECT_INPUT_ERROR(parse(R"(,"vocab_size":300)"), "\"vocab_size\" stands twice");
  EXPECT_INPUT_ERROR(parse(R"(,"head_dim":8.0)"), "whole number");
  EXPECT_INPUT_ERROR(parse(R"(,"head_dim":-8)"), "whole number");
  EXPECT_INPUT_ERROR(parse(R"(,"head_dim":18446744073709551615)"), "whole number");
  EXPECT_INPUT_ERROR(parse(R"(,"rope_theta":"big")"), "must be a number");
  EXPECT_INPUT_ERROR(parse(R"(,"tie_word_embeddings":1)"), "true or false");
  EXPECT_INPUT_ERROR(parse(",\"x\":" + std::string(100, '[') + std::string(100, ']')), "nested deeper");
  EXPECT_INPUT_ERROR(LlamaConfig::parse(std::string(2'000'000, ' '), "f"), "at most 1000000");
  EXPECT_INPUT_ERROR(parse(R"(,"head_dim":7)"), "config.json: model: the head dimension is 7");
  EXPECT_INPUT_ERROR(LlamaConfig::read("/nonexistent"), "/nonexistent/config.json: no such file");
}

TEST(LlamaConfig, EverySizeThatCannotWorkHasItsSentence) {
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.heads = 5; }).validate(),
                     "5 heads are not divisible by 2 key-value heads");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.kv_heads = 0; }).validate(), "number of key-value heads is 0");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.head_dim = 15; }).validate(), "must be even");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.hidden_size = 0; }).validate(), "hidden size is 0");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.layers = 1025; }).validate(), "1 to 1024");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.rms_norm_eps = 0; }).validate(), "rms_norm_eps");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.rope_theta = 1; }).validate(), "rope_theta");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.rope_theta = INFINITY; }).validate(), "rope_theta");
}

TEST(ParameterList, HasHuggingFacesNamesShapesAndOrder) {
  LlamaConfig config = LlamaConfig::read(golden("llama-gqa"));
  const std::vector<NamedParameter> list = parameter_list(test::ListedLlama(config));

  ASSERT_EQ(list.size(), 1u + 2 * 9 + 2);
  EXPECT_TRUE(list[0].name == "model.embed_tokens.weight" && list[0].shape == Shape({256, 32}));
  EXPECT_TRUE(list[3].name == "model.layers.0.self_attn.k_proj.weight" && list[3].shape == Shape({16, 32}));
  EXPECT_TRUE(list[5].name == "model.layers.0.self_attn.o_proj.weight" && list[5].shape == Shape({32, 32}));
  EXPECT_TRUE(list[18].name == "model.layers.1.mlp.down_proj.weight" && list[18].shape == Shape({32, 88}));
  EXPECT_TRUE(list[19].name == "model.norm.weight" && list[19].shape == Shape({32}));
  EXPECT_TRUE(list[20].name == "lm_head.weight" && list[20].shape == Shape({256, 32}));
  EXPECT_EQ(parameter_count(test::ListedLlama(config)),
            2 * 256 * 32 + 2 * (2 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 88 * 32) + 32);

  config.tied = true;
  EXPECT_EQ(parameter_list(test::ListedLlama(config)).back().name, "model.norm.weight");
  EXPECT_EQ(parameter_count(test::ListedLlama(config)),
            256 * 32 + 2 * (2 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 88 * 32) + 32);
}

}  // namespace
}  // namespace fsdp
