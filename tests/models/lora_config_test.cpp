// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/models/lora_config.hpp>

#include <string>

#include <gtest/gtest.h>

#include <tessera/fsdp/models/llama_config.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp {
namespace {

const std::string plain =
    R"({"peft_type":"LORA","r":8,"lora_alpha":16,"target_modules":["q_proj","model.layers.1.mlp.up_proj"]})";

/// `plain` with one more key.
std::string with(const std::string& key_and_value) {
  return plain.substr(0, plain.size() - 1) + "," + key_and_value + "}";
}

TEST(LoraConfig, TargetsMatchWholeNamesOrSuffixesAfterADot) {
  LoraConfig lora{.rank = 2};
  EXPECT_TRUE(lora.targets_projection("model.layers.0.self_attn.q_proj"));
  lora.targets = "q_proj,mlp.*,model.layers.1?.self_attn.v_proj";
  EXPECT_TRUE(lora.targets_projection("model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(lora.targets_projection("model.layers.3.mlp.up_proj"));
  EXPECT_TRUE(lora.targets_projection("model.layers.12.self_attn.v_proj"));
  EXPECT_FALSE(lora.targets_projection("model.layers.1.self_attn.v_proj"));
  EXPECT_FALSE(lora.targets_projection("model.layers.0.self_attn.a_q_proj"));
}

TEST(LoraConfig, ScaleIsAlphaOverRankOrOverItsSquareRoot) {
  EXPECT_EQ((LoraConfig{.rank = 4, .alpha = 8}.scale()), 2);
  EXPECT_EQ((LoraConfig{.rank = 4, .alpha = 8, .rslora = true}.scale()), 4);
}

TEST(LoraConfig, PathsOfABlockHaveTheirTargetsAndTheirOwnDropoutKey) {
  const LoraConfig lora{.rank = 2, .dropout = 0.5, .targets = "v_proj"};
  const auto first = lora.paths<2>("model.layers.0.", {"self_attn.q_proj", "self_attn.v_proj"});
  const auto second = lora.paths<2>("model.layers.1.", {"self_attn.q_proj", "self_attn.v_proj"});
  EXPECT_EQ(first.on, (std::array{false, true}));
  EXPECT_NE(first.key, second.key);
  EXPECT_FALSE(LoraConfig().paths<1>("model.layers.0.", {"mlp.down_proj"}).any());
}

TEST(LoraConfig, ReadsAPeftConfigAndRoundTripsIt) {
  const LoraConfig lora = LoraConfig::parse(with(R"("use_rslora":true,"lora_dropout":0.1,"use_dora":false)"), "here");
  EXPECT_EQ(lora.rank, 8);
  EXPECT_EQ(lora.alpha, 16);
  EXPECT_EQ(lora.dropout, 0.1);
  EXPECT_TRUE(lora.rslora);
  EXPECT_EQ(lora.targets, "q_proj,model.layers.1.mlp.up_proj");
  const std::string written =
      lora.write({"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.up_proj"},
                 {"model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj", "lm_head"});
  const LoraConfig again = LoraConfig::parse(written, "there");
  EXPECT_EQ(again.targets, lora.targets);
  EXPECT_EQ(again.scale(), lora.scale());
  EXPECT_EQ(again.dropout, lora.dropout);
}

TEST(LoraConfig, RefusesUnsupportedKeysByName) {
  const auto refused = [](const std::string& key_and_value, const std::string& sentence) {
    EXPECT_INPUT_ERROR(LoraConfig::parse(with(key_and_value), "here"), sentence);
  };
  refused(R"("rank_pattern":{"q_proj":4})",
          "here: \"rank_pattern\" is {\"q_proj\":4}, which this program does not know");
  refused(R"("bias":"lora_only")", "\"bias\" is \"lora_only\"; only \"none\" is supported");
  refused(R"("fan_in_fan_out":true)", "\"fan_in_fan_out\" is true");
  refused(R"("init_lora_weights":"olora")", "which changed the base's weights");
  refused(R"("a_key_of_tomorrow":3)", "\"a_key_of_tomorrow\" is 3");
  refused(R"("lora_dropout":1)", "lora_dropout is 1");
  EXPECT_INPUT_ERROR(LoraConfig::parse("[]", "here"), "here: not a JSON object");
  EXPECT_INPUT_ERROR(LoraConfig::parse(R"({"peft_type":"LORA","r":0,"lora_alpha":1,"target_modules":["x"]})", "here"),
                     "\"r\" is 0");
  for (const char* const modules : {"[]", "[3]", "[\"q*\"]", "{}"})
    EXPECT_INPUT_ERROR(
        LoraConfig::parse(std::string(R"({"peft_type":"LORA","r":1,"lora_alpha":1,"target_modules":)") + modules + "}",
                          "here"),
        "\"target_modules\"");
  const auto targets = [](const std::string& keys) {
    return LoraConfig::parse(R"({"peft_type":"LORA","r":1,"lora_alpha":1)" + keys + "}", "here");
  };
  EXPECT_INPUT_ERROR(targets(""), "here: \"target_modules\" is missing");
  EXPECT_INPUT_ERROR(targets(R"(,"target_modules":null)"), "\"target_modules\" is null; it must be a list of names");
  for (const char* const modules : {"", R"(,"target_modules":null)", R"(,"target_modules":[])"})
    EXPECT_INPUT_ERROR(targets(std::string(modules) + R"(,"target_parameters":["experts.w"])"),
                       "\"target_parameters\" is [\"experts.w\"], and no module is named");
}

TEST(LoraConfig, TreatsNullAsPeftDoes) {
  EXPECT_FALSE(
      LoraConfig::parse(with(R"("use_rslora":null,"task_type":null,"base_model_name_or_path":null)"), "here").rslora);
  for (const char* const key : {"bias", "lora_dropout"})
    EXPECT_INPUT_ERROR(LoraConfig::parse(with(std::string("\"") + key + "\":null"), "here"),
                       std::string("here: \"") + key + "\" is null; ");
  EXPECT_INPUT_ERROR(LoraConfig::parse(R"({"peft_type":null})", "here"), "\"peft_type\" is null; only \"LORA\"");
  EXPECT_INPUT_ERROR(LoraConfig::parse("{}", "here"), "\"peft_type\" is missing; this must be \"LORA\"");
}

TEST(LoraConfig, ErrorForUnmatchedTargetsReportsTheFileAndKey) {
  const test::TemporaryFolder model, adapter;
  model.write("config.json", llama_preset("tiny").write());
  adapter.write("adapter_config.json",
                R"({"peft_type":"LORA","r":8,"lora_alpha":16,"target_modules":["q_proj","query_key_value"]})");
  EXPECT_INPUT_ERROR(read_config<LlamaConfig>(model.path(), adapter.path()),
                     (adapter.path() / "adapter_config.json").string() +
                         ": \"target_modules\" has \"query_key_value\", which matches no projection");
}

TEST(LoraConfig, TargetsMustMatchProjectionsOfTheModel) {
  LlamaConfig config = llama_preset("tiny");
  config.lora = {.rank = 2, .targets = "q_proj,model.layers.7.*"};
  EXPECT_INPUT_ERROR(config.validate(), "lora_targets has 'model.layers.7.*', which matches no projection");
  config.lora.targets = "q_proj";
  config.lora.alpha = 0;
  EXPECT_INPUT_ERROR(config.validate(), "lora_alpha is 0");
  config.lora.alpha = 1;
  const LlamaConfig again = LlamaConfig::parse(config.write(), "config.json");
  EXPECT_EQ(again, config);
  EXPECT_EQ(again.lora.targets, "q_proj");
}

}  // namespace
}  // namespace fsdp
