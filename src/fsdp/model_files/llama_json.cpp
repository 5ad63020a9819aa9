// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/models/llama_config.hpp>

#include <algorithm>
#include <system_error>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/models/family.hpp>

#include "../core/json/strict_json.hpp"
#include "../core/paths.hpp"
#include "../core/strings.hpp"

namespace fsdp {
namespace {

using nlohmann::json;

// `null` has the same meaning as in `transformers` 5.24: the default for a key that is declared as optional there, "no
// window" for a window, and an error for every other key.

/// Reads the newer `rope_parameters` or the older `rope_scaling`, which takes precedence unless it is empty, as in
/// `transformers`. Also sets theta.
void read_rope(const Keys& keys, LlamaConfig& config) {
  const bool older = keys.has("rope_scaling") && !keys.at("rope_scaling").empty();
  const char* const key = older ? "rope_scaling" : "rope_parameters";
  // `transformers` 5 writes theta into rope_parameters; the older key may remain with the value null.
  const bool inside = keys.has(key) && keys.at(key).is_object() && keys.at(key).contains("rope_theta");
  config.rope_theta = keys.number("rope_theta", 10000.0, inside ? Null::absent : Null::refused);
  if (!keys.has(key)) return;
  const Keys inner = keys.object(key);
  config.rope_theta = inner.number("rope_theta", config.rope_theta);
  inner.expect("partial_rotary_factor", 1.0);
  RopeConfig& rope = config.rope;
  rope.type = inner.given("rope_type") ? inner.text("rope_type") : inner.text("type", "default");
  const bool llama3 = rope.type == "llama3", yarn = rope.type == "yarn";
  require<InputError>(llama3 || yarn || rope.type == "default" || rope.type == "linear", keys.source(),
                      ": the RoPE type \"", shortened(rope.type),
                      "\" is not known; default, linear, llama3 and yarn are");
  if (rope.type == "default") return;
  if (llama3 || yarn)
    rope.original_positions = inner.integer("original_max_position_embeddings", config.max_position_embeddings);
  if (yarn && !inner.has("factor"))
    rope.factor = static_cast<double>(config.max_position_embeddings) / static_cast<double>(rope.original_positions);
  else
    rope.factor = inner.number("factor");
  if (llama3) {
    rope.low_freq_factor = inner.number("low_freq_factor");
    rope.high_freq_factor = inner.number("high_freq_factor");
  }
  if (yarn) {
    const auto beta = [&](const char* name, double otherwise) {  // `transformers` also treats 0 as absent
      const double value = inner.number(name, otherwise, Null::absent);
      return value == 0 ? otherwise : value;
    };
    rope.beta_fast = beta("beta_fast", rope.beta_fast);
    rope.beta_slow = beta("beta_slow", rope.beta_slow);
    rope.attention_factor = inner.number("attention_factor", 0, Null::absent);
    require<InputError>(rope.attention_factor != 0 || !inner.has("attention_factor"), keys.source(),
                        ": \"attention_factor\" is 0, so that no token would see where another one is; give a number "
                        "above 0, or leave the key out for 0.1 ln(factor) + 1");
    inner.expect("truncate", true);
    for (const char* const other : {"mscale", "mscale_all_dim"})
      require<InputError>(!inner.has(other), keys.source(), ": \"", other, "\" of yarn is not supported; give its ",
                          "\"attention_factor\" instead");
  }
}

json write_rope(const RopeConfig& rope) {
  if (rope.type == "default") return nullptr;
  json object = {{"rope_type", rope.type}, {"factor", rope.factor}};
  if (rope.type == "linear") return object;
  object["original_max_position_embeddings"] = rope.original_positions;
  if (rope.type == "llama3") {
    object["low_freq_factor"] = rope.low_freq_factor;
    object["high_freq_factor"] = rope.high_freq_factor;
  } else {
    object["beta_fast"] = rope.beta_fast;
    object["beta_slow"] = rope.beta_slow;
    if (rope.attention_factor > 0) object["attention_factor"] = rope.attention_factor;
  }
  return object;
}

/// Reads the adapters that a checkpoint's weights include, under a key that only Tessera writes.
LoraConfig read_lora(const Keys& keys) {
  if (!keys.has("lora")) return {};
  const Keys inner = keys.object("lora");
  const std::int64_t rank = inner.integer("rank");
  require<InputError>(rank > 0, keys.source(), ": \"rank\" of \"lora\" is 0; leave \"lora\" out of a model without ",
                      "adapters");
  return {.rank = rank,
          .alpha = inner.number("alpha"),
          .dropout = inner.number("dropout", 0),
          .rslora = inner.boolean("rslora", false),
          .targets = inner.text("targets", "*"),
          .base = inner.text("base", "")};
}

json write_lora(const LoraConfig& lora) {
  return {{"rank", lora.rank},     {"alpha", lora.alpha},     {"dropout", lora.dropout},
          {"rslora", lora.rslora}, {"targets", lora.targets}, {"base", lora.base}};
}

/// Returns the number of layers before the first one with a window.
std::int64_t full_layers_of(const Keys& keys, const LlamaConfig& config, const Family& family) {
  if (!keys.has("layer_types")) {
    if (family.window == Family::Window::always) return 0;
    return std::min(keys.integer("max_window_layers", 28), config.layers);
  }
  const json& types = keys.at("layer_types");
  const auto full = std::ranges::find_if(types, [](const json& type) { return type != "full_attention"; });
  const bool rest = std::all_of(full, types.end(), [](const json& type) { return type == "sliding_attention"; });
  require<InputError>(types.is_array() && static_cast<std::int64_t>(types.size()) == config.layers && rest,
                      keys.source(), ": \"layer_types\" is ", keys.dump("layer_types"), "; it must name each of the ",
                      config.layers, " layers, all of \"full_attention\" before those of \"sliding_attention\"");
  return full - types.begin();
}

/// Reads the sliding window and its layers. Sets both to 0 if no layer has a window.
void read_window(const Keys& keys, LlamaConfig& config, const Family& family) {
  const auto window = [&]() -> std::int64_t {  // null: no window
    if (!keys.has("sliding_window")) return keys.given("sliding_window") ? 0 : 4096;
    const std::int64_t tokens = keys.integer("sliding_window");
    require<InputError>(tokens > 0, keys.source(),
                        ": \"sliding_window\" is 0, so that no token would see any; give null for no window");
    return tokens;
  };
  if (family.window == Family::Window::none) return;
  config.full_layers = full_layers_of(keys, config, family);
  const bool uses = family.window == Family::Window::always || keys.boolean("use_sliding_window", false);
  if (uses) config.sliding_window = window();
  require<InputError>(config.sliding_window > 0 || !keys.has("layer_types") || config.full_layers == config.layers,
                      keys.source(), ": \"layer_types\" names layers with a window, and ",
                      uses ? "\"sliding_window\" gives none" : "\"use_sliding_window\" is not true");
  if (config.sliding_window == 0 || config.full_layers == config.layers) config.sliding_window = config.full_layers = 0;
}

/// Throws InputError for a key that changes the computation in a way that is not supported.
void require_supported(const Keys& keys, const Family& family) {
  keys.expect("hidden_act", "silu");
  // The config.json of a family that does not use this key may still contain it, possibly as null.
  keys.expect("attention_bias", false, family.has_attention_bias ? Null::refused : Null::absent);
  keys.expect("mlp_bias", false, family.has_mlp_bias ? Null::refused : Null::absent);
  keys.expect("partial_rotary_factor", 1.0, Null::absent);
  require<InputError>(!keys.has("quantization_config"), keys.source(),
                      ": \"quantization_config\" is set; only float32, float16 and bfloat16 weights are read");
}

/// Keys that are read or checked here, so that `other_keys` does not contain them.
constexpr std::string_view known_keys =
    "architectures model_type hidden_act hidden_size num_hidden_layers num_attention_heads num_key_value_heads "
    "head_dim intermediate_size vocab_size max_position_embeddings rms_norm_eps rope_theta rope_scaling "
    "rope_parameters partial_rotary_factor attention_bias mlp_bias tie_word_embeddings torch_dtype dtype "
    "use_sliding_window sliding_window max_window_layers layer_types lora quantization_config";

/// Returns the last entry of a folder, in the order of names, that matches; empty if there is none.
template <class Matches>
std::filesystem::path last_in(const std::filesystem::path& folder, Matches matches) {
  std::filesystem::path last;
  std::error_code error;
  for (const std::filesystem::path& entry : entries_of(folder, error))
    if (matches(entry)) last = std::max(last, entry);
  return last;
}

/// For a folder without config.json: returns a likely reason why it was given, and the path to give instead; empty if
/// no reason is known.
std::string named_instead(const std::filesystem::path& folder) {
  if (path_exists(folder / "adapter_config.json"))
    return "it holds adapters: give the folder of their model, and this one for its adapters";
  const auto snapshot =
      last_in(folder / "snapshots", [](const auto& entry) { return path_exists(entry / "config.json"); });
  if (!snapshot.empty()) return "it is a repository in a cache of downloads: name its snapshot " + snapshot.string();
  const auto step = last_in(folder, [](const auto& entry) {
    const std::string name = entry.filename().string();
    return name.starts_with("step-") && name.find('.') == name.npos;
  });
  return step.empty() ? "" : "it is a directory of checkpoints: name one, such as " + step.string();
}

}  // namespace

LlamaConfig LlamaConfig::parse(std::string_view text, const std::string& source) {
  require<InputError>(static_cast<std::int64_t>(text.size()) <= most_config_bytes, source, ": ", text.size(),
                      " bytes; a config.json has at most ", most_config_bytes);
  json object = parse_strict(text, source);
  const Keys keys(object, source);
  const std::string type = keys.text("model_type");
  const Family* const found = find_family(type);
  require<InputError>(found != nullptr, source, ": \"model_type\" is \"", shortened(type), "\"; ", families_text("and"),
                      " are supported");
  const Family& family = *found;
  require_supported(keys, family);

  LlamaConfig config{.family = type,
                     .vocab_size = keys.integer("vocab_size"),
                     .hidden_size = keys.integer("hidden_size"),
                     .intermediate_size = keys.integer("intermediate_size"),
                     .layers = keys.integer("num_hidden_layers"),
                     .heads = keys.integer("num_attention_heads"),
                     .rms_norm_eps = keys.number("rms_norm_eps", 1e-6),
                     .tied = keys.boolean("tie_word_embeddings", false),
                     .max_position_embeddings = keys.integer("max_position_embeddings", family.positions)};
  const bool usual_kv_heads = family.kv_heads > 0 && !keys.given("num_key_value_heads");
  config.kv_heads = keys.integer("num_key_value_heads", usual_kv_heads ? family.kv_heads : config.heads,
                                 family.kv_heads_may_be_null ? Null::absent : Null::refused);
  require<InputError>(config.heads > 0, source, ": \"num_attention_heads\" is 0");
  const bool own_width = keys.has("head_dim") || family.head_dim > 0;
  const Null null_width = family.head_dim > 0 ? Null::refused : Null::absent;
  require<InputError>(own_width || config.hidden_size % config.heads == 0, source, ": hidden_size ", config.hidden_size,
                      " is not divisible by ", config.heads, " heads; give \"head_dim\"");
  const std::int64_t width = family.head_dim > 0 ? family.head_dim : config.hidden_size / config.heads;
  config.head_dim = keys.integer("head_dim", width, null_width);
  read_rope(keys, config);
  read_window(keys, config, family);
  config.lora = read_lora(keys);
  prefixed(source + ": ", [&] {
    config.rope.validate(RopeConfig::Naming::keys);
    config.validate();
  });
  for (const std::string_view key : split_at(known_keys, ' ')) object.erase(std::string(key));
  config.other_keys = object.dump();
  return config;
}

LlamaConfig LlamaConfig::read(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  require_folder(folder);
  const std::string instead = entry_exists(path) ? "" : named_instead(folder);
  require<InputError>(instead.empty(), folder.string(), " has no config.json; ", instead);
  return parse(read_small_file(path, most_config_bytes), path.string());
}

std::string LlamaConfig::write() const {
  const Family* const found = find_family(family);
  require(found != nullptr, "model: no family is called '", family, "'");
  using Window = Family::Window;
  nlohmann::ordered_json object = {{"architectures", {std::string(found->architecture) + "ForCausalLM"}},
                                   {"model_type", family},
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
                                   {"rope_scaling", write_rope(rope)}};
  if (found->window == Window::by_flag) {
    object["use_sliding_window"] = sliding_window > 0;
    object["max_window_layers"] = sliding_window > 0 ? full_layers : layers;
  }
  if (found->window != Window::none)
    object["sliding_window"] = sliding_window > 0 ? nlohmann::ordered_json(sliding_window) : nullptr;
  if (found->window == Window::always && full_layers > 0 && sliding_window > 0) {
    json types = json::array();  // this config has no max_window_layers, so every layer is listed
    for (int layer = 0; layer < layers; ++layer)
      types.push_back(window(layer) > 0 ? "sliding_attention" : "full_attention");
    object["layer_types"] = types;
  }
  if (found->has_attention_bias) object["attention_bias"] = false;
  if (found->has_mlp_bias) object["mlp_bias"] = false;
  object["tie_word_embeddings"] = tied;
  object["torch_dtype"] = "float32";
  if (lora.on()) object["lora"] = write_lora(lora);
  const json other = json::parse(other_keys);
  for (const auto& [key, value] : other.items()) object[key] = value;
  return object.dump(2) + "\n";
}

}  // namespace fsdp
