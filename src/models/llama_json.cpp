// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <fsdp/core/error.hpp>
#include <fsdp/models/llama_config.hpp>

#include "strict_json.hpp"

namespace fsdp {
namespace {

using nlohmann::json;

constexpr std::int64_t most_config_bytes = 1'000'000;

/// Typed look-ups in one JSON object; `null` counts as absent.
class Keys {
 public:
  Keys(const json& object, const std::string& source) : object_(object), source_(source) {}

  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

  std::int64_t integer(const char* key) const {
    require<InputError>(has(key), source_, ": the key \"", key, "\" is missing");
    const json& value = object_.at(key);
    require<InputError>(value.is_number_unsigned() && value.get<std::uint64_t>() <= INT64_MAX, source_, ": \"", key,
                        "\" is ", value.dump(), "; it must be a whole number that is not negative");
    return value.get<std::int64_t>();
  }
  std::int64_t integer(const char* key, std::int64_t otherwise) const { return has(key) ? integer(key) : otherwise; }

  double number(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    require<InputError>(object_.at(key).is_number(), source_, ": \"", key, "\" is ", dump(key),
                        "; it must be a number");
    return object_.at(key).get<double>();
  }

  bool boolean(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    require<InputError>(object_.at(key).is_boolean(), source_, ": \"", key, "\" is ", dump(key),
                        "; it must be true or false");
    return object_.at(key).get<bool>();
  }

  /// Refuses every value but `only`, or, where `optional`, no value.
  void expect(const char* key, const json& only, bool optional = true) const {
    if (optional && !has(key)) return;
    require<InputError>(has(key), source_, ": the key \"", key, "\" is missing; this must be ", only.dump());
    require<InputError>(object_.at(key) == only, source_, ": \"", key, "\" is ", dump(key), "; only ", only.dump(),
                        " is supported");
  }

  std::string dump(const char* key) const {
    return object_.at(key).dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 80);
  }
  const json& at(const char* key) const { return object_.at(key); }

 private:
  const json& object_;
  const std::string& source_;
};

/// `rope_scaling` and `rope_parameters` may stand there if they scale nothing.
void refuse_scaled_rotation(const Keys& keys, const char* key, const std::string& source) {
  if (!keys.has(key)) return;
  const json& rope = keys.at(key);
  require<InputError>(rope.is_object(), source, ": \"", key, "\" is ", keys.dump(key), "; it must be an object");
  const Keys inner(rope, source);
  inner.expect("rope_type", "default");
  inner.expect("type", "default");
  inner.expect("partial_rotary_factor", 1.0);
}

}  // namespace

LlamaConfig LlamaConfig::parse(std::string_view text, const std::string& source) {
  require<InputError>(static_cast<std::int64_t>(text.size()) <= most_config_bytes, source, ": ", text.size(),
                      " bytes; a config.json has at most ", most_config_bytes);
  const json object = parse_strict(text, source);
  require<InputError>(object.is_object(), source, ": not a JSON object");
  const Keys keys(object, source);
  keys.expect("model_type", "llama", false);
  keys.expect("hidden_act", "silu");
  keys.expect("attention_bias", false);
  keys.expect("mlp_bias", false);
  keys.expect("partial_rotary_factor", 1.0);
  require<InputError>(!keys.has("quantization_config"), source,
                      ": \"quantization_config\" is set; only float32 and bfloat16 weights are read");
  refuse_scaled_rotation(keys, "rope_scaling", source);
  refuse_scaled_rotation(keys, "rope_parameters", source);

  LlamaConfig config{.vocab_size = keys.integer("vocab_size"),
                     .hidden_size = keys.integer("hidden_size"),
                     .intermediate_size = keys.integer("intermediate_size"),
                     .layers = keys.integer("num_hidden_layers"),
                     .heads = keys.integer("num_attention_heads"),
                     .rms_norm_eps = keys.number("rms_norm_eps", 1e-6),
                     .rope_theta = keys.number("rope_theta", 10000.0),
                     .tied = keys.boolean("tie_word_embeddings", false),
                     .max_position_embeddings = keys.integer("max_position_embeddings", 2048)};
  config.kv_heads = keys.integer("num_key_value_heads", config.heads);
  require<InputError>(config.heads > 0, source, ": \"num_attention_heads\" is 0");
  if (keys.has("rope_parameters"))
    config.rope_theta = Keys(keys.at("rope_parameters"), source).number("rope_theta", config.rope_theta);
  require<InputError>(keys.has("head_dim") || config.hidden_size % config.heads == 0, source, ": hidden_size ",
                      config.hidden_size, " is not divisible by ", config.heads, " heads; give \"head_dim\"");
  config.head_dim = keys.integer("head_dim", config.hidden_size / config.heads);
  try {
    config.validate();
  } catch (const InputError& error) {
    throw InputError(source + ": " + error.what());
  }
  return config;
}

LlamaConfig LlamaConfig::read(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  return parse(read_small_file(path, most_config_bytes), path.string());
}

std::string LlamaConfig::write() const {
  nlohmann::ordered_json object = {{"architectures", {"LlamaForCausalLM"}},
                                   {"model_type", "llama"},
                                   {"hidden_act", "silu"},
                                   {"hidden_size", hidden_size},
                                   {"num_hidden_layers", layers},
                                   {"num_attention_heads", heads},
                                   {"num_key_value_heads", kv_heads},
                                   {"head_dim", head_dim},
                                   {"intermediate_size", intermediate_size},
                                   {"vocab_size", vocab_size},
                                   {"max_position_embeddings", max_position_embeddings},
                                   {"rms_norm_eps", rms_norm_eps},
                                   {"rope_theta", rope_theta},
                                   {"rope_scaling", nullptr},
                                   {"attention_bias", false},
                                   {"mlp_bias", false},
                                   {"tie_word_embeddings", tied},
                                   {"torch_dtype", "float32"},
                                   {"bos_token_id", 0},
                                   {"eos_token_id", 0}};
  return object.dump(2) + "\n";
}

}  // namespace fsdp
