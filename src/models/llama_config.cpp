// SPDX-License-Identifier: Apache-2.0
#include <fsdp/models/llama_config.hpp>

#include <array>
#include <cmath>
#include <utility>

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

void LlamaConfig::validate() const {
  const LlamaConfig& c = *this;
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
}

}  // namespace fsdp
