// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/models/llama_config.hpp>

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

TEST(LlamaPreset, AllAreValidAndTheFirstIsTheSmallest) {
  std::int64_t previous = 0;
  for (const std::string& name : llama_preset_names()) {
    const LlamaConfig config = llama_preset(name);
    EXPECT_NO_THROW(config.validate()) << name;
    EXPECT_GT(parameter_count(test::ListedLlama(config)), previous) << name;
    previous = parameter_count(test::ListedLlama(config));
  }
}

TEST(LlamaPreset, ErrorForAnUnknownPresetSuggestsTheNearestName) {
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

TEST(LlamaConfig, RoundTripsThroughWriteAndRead) {
  LlamaConfig config = llama_preset("small");
  config.tied = true;
  config.rope_theta = 123456.789;
  config.rms_norm_eps = 1.1e-6;
  EXPECT_EQ(LlamaConfig::parse(config.write(), "here"), config);
}

TEST(LlamaConfig, WritesTheGoldenFileUnchanged) {
  const LlamaConfig config = LlamaConfig::read(golden("llama-gqa"));
  EXPECT_EQ(config.write(), test::content_of(golden("llama-gqa") / "config.json"));
}

TEST(LlamaConfig, AbsentKeysHaveHuggingFaceDefaults) {
  const LlamaConfig config = parse(R"(,"rope_scaling":null,"head_dim":null,"num_labels":7)");
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_FALSE(config.tied);
  EXPECT_EQ(parse(R"(,"rope_parameters":{"rope_type":"default","rope_theta":500000.0})").rope_theta, 500000.0);
}

TEST(LlamaConfig, RefusesUnsupportedKeysByName) {
  EXPECT_INPUT_ERROR(parse(R"(,"hidden_act":"gelu")"), R"("hidden_act" is "gelu"; only "silu" is supported)");
  EXPECT_INPUT_ERROR(parse(R"(,"attention_bias":true)"), "attention_bias");
  EXPECT_INPUT_ERROR(parse(R"(,"mlp_bias":true)"), "mlp_bias");
  EXPECT_INPUT_ERROR(parse(R"(,"rope_scaling":{"rope_type":"dynamic","factor":4})"),
                     R"(the RoPE type "dynamic" is not known; default, linear, llama3 and yarn are)");
  EXPECT_INPUT_ERROR(parse(R"(,"rope_scaling":{"type":"linear"})"), R"("factor" is missing)");
  EXPECT_INPUT_ERROR(parse(R"(,"rope_parameters":{"rope_type":"llama3","factor":8})"), "low_freq_factor");
  EXPECT_INPUT_ERROR(parse(R"(,"rope_parameters":{"rope_type":"yarn","factor":8,"mscale":1})"), "mscale");
  EXPECT_INPUT_ERROR(parse(R"(,"rope_parameters":{"rope_type":"yarn","factor":0.5})"),
                     "\"factor\" is 0.5; it must be 1 to 1e6");
  EXPECT_INPUT_ERROR(parse(R"(,"rope_scaling":7)"), "must be an object");
  EXPECT_INPUT_ERROR(parse(R"(,"quantization_config":{"bits":4})"), "quantization_config");
  EXPECT_INPUT_ERROR(LlamaConfig::parse(R"({"model_type":"gemma3"})", "f"),
                     R"("model_type" is "gemma3"; llama, mistral, qwen2 and qwen3 are supported)");
  EXPECT_INPUT_ERROR(LlamaConfig::parse("{}", "f"), "\"model_type\" is missing");
}

/// Parses a config.json of one of the families. For qwen it sets 4 key-value heads: the default, 32, does not divide 4.
LlamaConfig family(const std::string& name, std::string more, int layers = 2) {
  if (name.starts_with("qwen") && more.find("num_key_value_heads") == more.npos) more += R"(,"num_key_value_heads":4)";
  return LlamaConfig::parse(
      R"({"model_type":")" + name +
          R"(","vocab_size":256,"hidden_size":32,"intermediate_size":88,"num_attention_heads":4,"num_hidden_layers":)" +
          std::to_string(layers) + more + "}",
      "config.json");
}

TEST(LlamaFamilies, HaveTheirOwnDefaults) {
  EXPECT_EQ(family("qwen3", "").head_dim, 128);
  EXPECT_EQ(family("qwen2", "").head_dim, 8);
  EXPECT_INPUT_ERROR(family("mistral", ""), "4 heads are not divisible by 8 key-value heads");
  EXPECT_EQ(family("mistral", R"(,"num_key_value_heads":4)").sliding_window, 4096);
  EXPECT_EQ(family("mistral", R"(,"num_key_value_heads":4,"sliding_window":null)").sliding_window, 0);
  EXPECT_EQ(family("qwen2", R"(,"sliding_window":7)").sliding_window, 0);
  EXPECT_EQ(family("llama", R"(,"sliding_window":7)").sliding_window, 0);  // as in transformers
}

/// The expected values are those of transformers 5.24 (AutoConfig.from_pretrained) for null, key by key.
TEST(LlamaFamilies, TreatNullAsTransformersDoes) {
  const auto null = [](const std::string& name, const std::string& key, const std::string& more = "") {
    const std::string heads = key == "num_key_value_heads" ? "" : R"(,"num_key_value_heads":2)";
    return family(name, heads + more + ",\"" + key + "\":null");
  };
  for (const char* const name : {"llama", "mistral", "qwen2", "qwen3"}) {
    for (const char* const key : {"rope_scaling", "rope_parameters", "layer_types", "quantization_config", "dtype",
                                  "torch_dtype", "partial_rotary_factor"})
      EXPECT_EQ(null(name, key), family(name, R"(,"num_key_value_heads":2)")) << name << " " << key;
    for (const char* const key :
         {"max_position_embeddings", "rms_norm_eps", "rope_theta", "hidden_act", "tie_word_embeddings"})
      EXPECT_INPUT_ERROR(null(name, key), std::string("config.json: \"") + key + "\" is null; ");
  }
  for (const char* const name : {"llama", "qwen2", "qwen3"}) EXPECT_EQ(null(name, "num_key_value_heads").kv_heads, 4);
  EXPECT_INPUT_ERROR(null("mistral", "num_key_value_heads"), "\"num_key_value_heads\" is null; it must be a whole");
  for (const char* const name : {"llama", "mistral", "qwen2"}) EXPECT_EQ(null(name, "head_dim").head_dim, 8);
  EXPECT_INPUT_ERROR(null("qwen3", "head_dim"), "\"head_dim\" is null");
  for (const char* const name : {"qwen2", "qwen3"}) {
    const LlamaConfig none = null(name, "sliding_window", R"(,"use_sliding_window":true,"max_window_layers":0)");
    EXPECT_EQ(none.sliding_window, 0);
    test::expect_parts(none.write(), {"\"sliding_window\": null"});
    EXPECT_EQ(family(name, R"(,"use_sliding_window":true,"max_window_layers":0)").sliding_window, 4096);
    EXPECT_INPUT_ERROR(null(name, "max_window_layers"), "\"max_window_layers\" is null");
    EXPECT_INPUT_ERROR(null(name, "use_sliding_window"), "\"use_sliding_window\" is null");
    EXPECT_INPUT_ERROR(null(name, "sliding_window",
                            R"(,"use_sliding_window":true,"layer_types":["full_attention","sliding_attention"])"),
                       "\"layer_types\" names layers with a window, and \"sliding_window\" gives none");
  }
  EXPECT_INPUT_ERROR(LlamaConfig::parse(R"({"model_type":"qwen2","vocab_size":9,"hidden_size":32,"intermediate_size":8,
    "num_hidden_layers":1,"num_attention_heads":4})",
                                        "f"),
                     "4 heads are not divisible by 32 key-value heads");
  EXPECT_EQ(null("mistral", "sliding_window").sliding_window, 0);
  EXPECT_EQ(null("mistral", "mlp_bias"), family("mistral", R"(,"num_key_value_heads":2)"));  // mistral has no such key
  EXPECT_INPUT_ERROR(null("llama", "mlp_bias"), "\"mlp_bias\" is null; only false is supported");
  EXPECT_INPUT_ERROR(null("qwen3", "attention_bias"), "\"attention_bias\" is null; only false is supported");
}

TEST(LlamaConfig, NullInRopeScalingIsADefaultOnlyForYarnParameters) {
  const std::string yarn = R"(,"rope_scaling":{"rope_type":"yarn","original_max_position_embeddings":64)";
  const LlamaConfig config = parse(R"(,"max_position_embeddings":256)" + yarn +
                                   R"(,"factor":null,"beta_fast":null,"beta_slow":null,"attention_factor":null})");
  EXPECT_EQ(config.rope.factor, 4);
  EXPECT_EQ(config.rope.beta_fast, 32);
  EXPECT_EQ(config.rope.beta_slow, 1);
  EXPECT_INPUT_ERROR(parse(yarn + R"(,"factor":4,"truncate":null})"), "\"truncate\" is null; only true is supported");
  for (const char* const key :
       {"rope_theta", "rope_type", "factor", "low_freq_factor", "original_max_position_embeddings"})
    EXPECT_INPUT_ERROR(
        parse(std::string(R"(,"rope_scaling":{"type":"llama3","high_freq_factor":4)") +
              (key == std::string("factor") ? "" : R"(,"factor":8)") +
              (key == std::string("low_freq_factor") ? "" : R"(,"low_freq_factor":1)") + ",\"" + key + "\":null}"),
        std::string("\"") + key + "\" is null");
  EXPECT_INPUT_ERROR(parse(R"(,"lora":{"rank":2,"alpha":4,"dropout":null})"), "\"dropout\" is null");
}

TEST(LlamaConfig, AZeroInAFileIsNotTreatedAsAbsent) {
  const std::string yarn = R"(,"rope_scaling":{"rope_type":"yarn","factor":4,"original_max_position_embeddings":64)";
  EXPECT_INPUT_ERROR(parse(yarn + R"(,"attention_factor":0.0})"), "\"attention_factor\" is 0, so that no token");
  EXPECT_INPUT_ERROR(parse(yarn + R"(,"attention_factor":-1})"), "\"attention_factor\" is -1; it must be above 0");
  EXPECT_EQ(parse(yarn + R"(,"beta_fast":0,"beta_slow":0})"), parse(yarn + "}"));  // as in transformers
  EXPECT_INPUT_ERROR(parse(R"(,"lora":{"rank":0,"alpha":4})"), "\"rank\" of \"lora\" is 0");
  EXPECT_INPUT_ERROR(family("mistral", R"(,"num_key_value_heads":2,"sliding_window":0)"),
                     "\"sliding_window\" is 0, so that no token would see any; give null for no window");
  EXPECT_EQ(family("qwen2", R"(,"sliding_window":0)").sliding_window, 0);  // use_sliding_window is false
  EXPECT_EQ(parse(R"(,"rope_scaling":{},"rope_parameters":{"rope_type":"linear","factor":2})").rope.factor, 2);
}

TEST(LlamaConfig, EqualYarnBetasGiveAStepLikeRamp) {
  const std::string yarn = R"(,"rope_scaling":{"rope_type":"yarn","factor":4,"original_max_position_embeddings":64)";
  const LlamaConfig equal = parse(yarn + R"(,"beta_fast":2,"beta_slow":2})");
  const device::RotaryScaling ramp = equal.rope.scaling(10000, 8);
  EXPECT_EQ(ramp.low, 0);  // the pair with two rotations is 8 ln(64 / 4 pi) / (2 ln 10000) = 0.707
  EXPECT_EQ(ramp.high, 1);
  EXPECT_INPUT_ERROR(parse(yarn + R"(,"beta_fast":1,"beta_slow":2})"),
                     "\"beta_slow\" is 2 and \"beta_fast\" is 1; the first must be above 0 and at most the second");
}

TEST(LlamaConfig, ANullRopeThetaIsIgnoredIfRopeParametersHaveOne) {
  EXPECT_EQ(parse(R"(,"rope_theta":null,"rope_parameters":{"rope_type":"default","rope_theta":5e5})").rope_theta, 5e5);
  EXPECT_INPUT_ERROR(parse(R"(,"rope_theta":null,"rope_parameters":{"rope_type":"default"})"),
                     "\"rope_theta\" is null");
}

TEST(LlamaFamilies, ApplySlidingWindowsFromMaxWindowLayersOn) {
  const std::string window = R"(,"use_sliding_window":true,"sliding_window":7)";
  const LlamaConfig some = family("qwen3", window + R"(,"max_window_layers":1)", 3);
  EXPECT_EQ((std::vector{some.window(0), some.window(1), some.window(2)}), (std::vector<std::int64_t>{0, 7, 7}));
  EXPECT_EQ(family("qwen2", window, 3), family("qwen2", "", 3));  // by default the first 28 layers have no window
  const std::string listed = window + R"(,"layer_types":["full_attention","sliding_attention","sliding_attention"])";
  EXPECT_EQ(family("qwen3", listed, 3), some);
  EXPECT_INPUT_ERROR(family("qwen3", listed, 2), "it must name each of the 2 layers");
  EXPECT_INPUT_ERROR(family("qwen3", window + R"(,"layer_types":["sliding_attention","full_attention"])"),
                     "before those of");
  EXPECT_INPUT_ERROR(family("qwen3", R"(,"layer_types":["full_attention","sliding_attention"])"),
                     "\"use_sliding_window\" is not true");
  EXPECT_INPUT_ERROR(family("qwen3", R"(,"layer_types":7)"), "\"layer_types\" is 7");
}

TEST(LlamaFamilies, LayerTypesOfMistralSelectTheLayersWithAWindow) {
  const auto mistral = [](const std::string& types, const std::string& window = "7") {
    return family("mistral", R"(,"num_key_value_heads":2,"sliding_window":)" + window + R"(,"layer_types":)" + types,
                  3);
  };
  const LlamaConfig all = mistral(R"(["sliding_attention","sliding_attention","sliding_attention"])");
  EXPECT_EQ(all, mistral("null"));
  EXPECT_EQ(all.write().find("layer_types"), std::string::npos);
  const std::string full = R"(["full_attention","full_attention","full_attention"])";
  const LlamaConfig none = mistral(full);
  EXPECT_EQ(none.sliding_window, 0);
  EXPECT_EQ(none, mistral(full, "null"));
  const LlamaConfig some = mistral(R"(["full_attention","sliding_attention","sliding_attention"])");
  EXPECT_EQ((std::vector{some.window(0), some.window(1), some.window(2)}), (std::vector<std::int64_t>{0, 7, 7}));
  for (const LlamaConfig& config : {all, none, some}) EXPECT_EQ(LlamaConfig::parse(config.write(), "here"), config);
  EXPECT_INPUT_ERROR(mistral(R"(["sliding_attention","full_attention","sliding_attention"])"),
                     "it must name each of the 3 layers, all of \"full_attention\" before those of");
  EXPECT_INPUT_ERROR(mistral(R"(["sliding_attention","sliding_attention","sliding_attention"])", "null"),
                     "\"layer_types\" names layers with a window, and \"sliding_window\" gives none");
}

TEST(LlamaFamilies, RoundTripThroughWriteAndKeepOtherKeys) {
  const std::string window = R"(,"use_sliding_window":true,"sliding_window":7,"max_window_layers":1)";
  const std::string yarn =
      R"(,"rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":64,"attention_factor":1.5})";
  const std::string llama3 = R"(,"rope_parameters":{"rope_type":"llama3","rope_theta":5e5,"factor":8,
    "low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192})";
  for (const LlamaConfig& config :
       {family("mistral", R"(,"num_key_value_heads":2,"sliding_window":5,"eos_token_id":[1,2])"),
        family("qwen2", yarn + R"(,"initializer_range":0.03)"), family("qwen3", window), family("llama", llama3)}) {
    const LlamaConfig back = LlamaConfig::parse(config.write(), "here");
    EXPECT_EQ(back, config);
    EXPECT_EQ(back.other_keys, config.other_keys);
    EXPECT_EQ(back.write(), config.write());
  }
  EXPECT_EQ(family("qwen2", R"(,"eos_token_id":[1,2],"x":null)").other_keys, R"({"eos_token_id":[1,2],"x":null})");
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
  const test::TemporaryFolder folder;
  EXPECT_INPUT_ERROR(LlamaConfig::read(folder.path()), folder.path().string() + "/config.json: no such file");
}

TEST(LlamaConfig, ErrorForAnAdapterOrCheckpointFolderSuggestsTheRightPath) {
  const test::TemporaryFolder steps, adapters;
  for (const char* const name : {"step-00000010", "step-00000020", "step-00000030.tmp-1"})
    std::filesystem::create_directory(steps.path() / name);
  adapters.write("adapter_config.json", "{}");
  EXPECT_INPUT_ERROR(LlamaConfig::read(steps.path()),
                     " has no config.json; it is a directory of checkpoints: name one, such as " +
                         (steps.path() / "step-00000020").string());
  EXPECT_INPUT_ERROR(
      LlamaConfig::read(adapters.path()),
      " has no config.json; it holds adapters: give the folder of their model, and this one for its adapters");
  const test::TemporaryFolder cache;
  cache.write("blobs/0", "");
  cache.write("snapshots/abc/config.json", "{}");
  EXPECT_INPUT_ERROR(LlamaConfig::read(cache.path()),
                     " has no config.json; it is a repository in a cache of downloads: name its snapshot " +
                         (cache.path() / "snapshots/abc").string());
  EXPECT_INPUT_ERROR(LlamaConfig::read(cache.path() / "nowhere"), "nowhere: no such folder");
}

TEST(LlamaConfig, EveryInvalidSizeHasItsOwnErrorMessage) {
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.heads = 5; }).validate(),
                     "5 heads are not divisible by 2 key-value heads");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.kv_heads = 0; }).validate(), "number of key-value heads is 0");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.head_dim = 15; }).validate(), "must be even");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.hidden_size = 0; }).validate(), "hidden size is 0");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.layers = 1025; }).validate(), "1 to 1024");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.rms_norm_eps = 0; }).validate(), "rms_norm_eps");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.rope_theta = 1; }).validate(), "rope_theta");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.family = "qwen4"; }).validate(), "no family is called 'qwen4'");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.sliding_window = 9; }).validate(), "take --family mistral");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.rope.type = "yarm"; }).validate(), "rope_type is 'yarm'");
  EXPECT_INPUT_ERROR(changed([](LlamaConfig& c) { c.rope_theta = INFINITY; }).validate(), "rope_theta");
}

TEST(ParameterList, OfQwenIncludesBiasesAndHeadNorms) {
  LlamaConfig config = llama_preset("tiny");
  const auto names = [&] {
    std::vector<std::string> list;
    for (const Parameter& parameter : parameter_list(test::ListedLlama(config)))
      if (parameter.name.starts_with("model.layers.0.self_attn.")) list.push_back(parameter.name.substr(25));
    return list;
  };
  const std::vector<std::string> llama = {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"};
  EXPECT_EQ(names(), llama);
  config.family = "qwen2";
  std::vector<std::string> qwen2 = llama, qwen3 = llama;
  for (const char* const name : {"q_proj.bias", "k_proj.bias", "v_proj.bias"}) qwen2.push_back(name);
  EXPECT_EQ(names(), qwen2);
  config.family = "qwen3";
  for (const char* const name : {"q_norm.weight", "k_norm.weight"}) qwen3.push_back(name);
  EXPECT_EQ(names(), qwen3);
}

TEST(ParameterList, HasHuggingFaceNamesShapesAndOrder) {
  LlamaConfig config = LlamaConfig::read(golden("llama-gqa"));
  const std::vector<Parameter> list = parameter_list(test::ListedLlama(config));

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

struct MixedStack {
  using Local = fsdp::Local<device::Cpu, PrecisionBy<Fp32, Bf16Mixed>>;
};

TEST(Llama, PlansAHeadInFloatIfAPatternSelectsItsMatrix) {
  const auto head_of = [](const char* names, bool tied) {
    const LlamaConfig config = changed([&](LlamaConfig& c) { c.tied = tied; });
    UnitOptions units;
    units.precision = PrecisionBy{on(names, Fp32{}), otherwise(Bf16Mixed{})};
    return Llama<MixedStack>(config, units).head();
  };
  for (const bool tied : {false, true}) {
    EXPECT_TRUE(head_of("lm_head", tied).in_float);  // tied: the other name of that tensor
    EXPECT_EQ(head_of("embedding", tied).in_float, tied);
    EXPECT_TRUE(head_of("head", tied).in_float);
    EXPECT_FALSE(head_of("*norm*", tied).in_float);
  }
  UnitOptions twice;
  twice.precision = PrecisionBy{on("lm_head", Fp32{}), on("head", Fp32{}), otherwise(Bf16Mixed{})};
  EXPECT_INPUT_ERROR((Llama<MixedStack>(changed([](LlamaConfig& c) { c.tied = false; }), twice)), "matches both");
}

}  // namespace
}  // namespace fsdp
