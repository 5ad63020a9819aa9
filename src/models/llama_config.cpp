// SPDX-License-Identifier: Apache-2.0
#include <fsdp/models/llama_config.hpp>

#include <array>
#include <cmath>
#include <utility>

#include <fsdp/core/checked.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/core/nearest.hpp>

namespace fsdp {
namespace {

struct Preset {
  std::string_view name;
  LlamaConfig config;
};

const std::array presets = {
    Preset{"tiny",
           {.vocab_size = 256,
            .hidden_size = 96,
            .intermediate_size = 256,
            .layers = 3,
            .heads = 6,
            .kv_heads = 2,
            .head_dim = 16}},
    Preset{"small",
           {.vocab_size = 256,
            .hidden_size = 128,
            .intermediate_size = 384,
            .layers = 4,
            .heads = 4,
            .kv_heads = 2,
            .head_dim = 32}},
};

struct Range {
  std::string_view name;
  std::int64_t value;
  std::int64_t most;
};

}  // namespace

std::vector<std::string> llama_preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets) names.emplace_back(preset.name);
  return names;
}

LlamaConfig llama_preset(std::string_view name) {
  for (const Preset& preset : presets)
    if (preset.name == name) return preset.config;
  throw InputError(message("no preset is called '", name, "'; ", suggestion(name, llama_preset_names())));
}

void validate(const LlamaConfig& c) {
  const std::array ranges = {Range{"vocabulary", c.vocab_size, std::int64_t{1} << 22},
                             Range{"hidden size", c.hidden_size, std::int64_t{1} << 17},
                             Range{"intermediate size", c.intermediate_size, std::int64_t{1} << 20},
                             Range{"number of layers", c.layers, 1024},
                             Range{"number of heads", c.heads, 1024},
                             Range{"number of key-value heads", c.kv_heads, 1024},
                             Range{"head dimension", c.head_dim, 512},
                             Range{"number of positions", c.max_position_embeddings, std::int64_t{1} << 24}};
  for (const Range& range : ranges)
    require<InputError>(range.value >= 1 && range.value <= range.most, "model: the ", range.name, " is ", range.value,
                        "; it must be 1 to ", range.most);
  require<InputError>(c.heads % c.kv_heads == 0, "model: ", c.heads, " heads are not divisible by ", c.kv_heads,
                      " key-value heads");
  require<InputError>(c.head_dim % 2 == 0, "model: the head dimension is ", c.head_dim,
                      "; rotary embedding turns pairs, so it must be even");
  require<InputError>(std::isfinite(c.rms_norm_eps) && c.rms_norm_eps > 0 && c.rms_norm_eps <= 1e-2,
                      "model: rms_norm_eps is ", c.rms_norm_eps, "; it must be above 0 and at most 0.01");
  require<InputError>(std::isfinite(c.rope_theta) && c.rope_theta > 1 && c.rope_theta <= 1e9, "model: rope_theta is ",
                      c.rope_theta, "; it must be above 1 and at most 1e9");
  parameter_count(c);
}

std::vector<NamedShape> parameter_list(const LlamaConfig& c) {
  const std::int64_t hidden = c.hidden_size;
  const std::int64_t query = checked_multiply(c.heads, c.head_dim);
  const std::int64_t key_value = checked_multiply(c.kv_heads, c.head_dim);
  std::vector<NamedShape> list;
  list.push_back({"model.embed_tokens.weight", {c.vocab_size, hidden}});
  for (std::int64_t n = 0; n < c.layers; ++n) {
    const std::string layer = "model.layers." + std::to_string(n) + ".";
    list.push_back({layer + "input_layernorm.weight", {hidden}});
    list.push_back({layer + "self_attn.q_proj.weight", {query, hidden}});
    list.push_back({layer + "self_attn.k_proj.weight", {key_value, hidden}});
    list.push_back({layer + "self_attn.v_proj.weight", {key_value, hidden}});
    list.push_back({layer + "self_attn.o_proj.weight", {hidden, query}});
    list.push_back({layer + "post_attention_layernorm.weight", {hidden}});
    list.push_back({layer + "mlp.gate_proj.weight", {c.intermediate_size, hidden}});
    list.push_back({layer + "mlp.up_proj.weight", {c.intermediate_size, hidden}});
    list.push_back({layer + "mlp.down_proj.weight", {hidden, c.intermediate_size}});
  }
  list.push_back({"model.norm.weight", {hidden}});
  if (!c.tied) list.push_back({"lm_head.weight", {c.vocab_size, hidden}});
  return list;
}

std::int64_t parameter_count(const LlamaConfig& config) {
  std::int64_t count = 0;
  for (const NamedShape& parameter : parameter_list(config)) count = checked_add(count, elements_of(parameter.shape));
  return count;
}

}  // namespace fsdp
