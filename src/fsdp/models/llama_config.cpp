// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/models/llama_config.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/models/family.hpp>

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

const std::array<std::string, 4> rope_types = {"default", "linear", "llama3", "yarn"};

/// Throws InputError for a pattern that matches no projection.
void validate_targets(const LlamaConfig& config) {
  config.lora.validate();
  const std::string unmatched = config.unmatched_target();
  require<InputError>(unmatched.empty(), "model: lora_targets has '", unmatched,
                      "', which matches no projection; q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and "
                      "down_proj can have adapters, in all layers or in some (model.layers.0.*)");
}

struct Allowed {
  std::string_view name;
  std::int64_t value;
  std::int64_t most;
};

}  // namespace

template ConfigValues values_of(LlamaConfig);

bool LlamaConfig::biases() const {
  const Family* const own = find_family(family);
  return own != nullptr && own->biases;
}

bool LlamaConfig::head_norms() const {
  const Family* const own = find_family(family);
  return own != nullptr && own->head_norms;
}

bool operator==(const LlamaConfig& a, const LlamaConfig& b) { return values_of(a) == values_of(b); }

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

void RopeConfig::validate(Naming naming) const {
  const auto name = [&](std::string_view flag, std::string_view key) {
    return naming == Naming::keys ? message('"', key, '"') : message("model: ", flag);
  };
  require<InputError>(std::ranges::find(rope_types, type) != rope_types.end(), name("rope_type", "rope_type"), " is '",
                      type, "'; ", suggestion(type, {rope_types.begin(), rope_types.end()}));
  if (type == "default") return;
  require<InputError>(std::isfinite(factor) && factor >= 1 && factor <= 1e6, name("rope_factor", "factor"), " is ",
                      factor, "; it must be 1 to 1e6");
  if (type == "linear") return;
  require<InputError>(original_positions >= 1 && original_positions <= std::int64_t{1} << 24,
                      name("rope_original_positions", "original_max_position_embeddings"), " is ", original_positions,
                      "; it must be 1 to ", 1 << 24);
  const bool llama3 = type == "llama3";
  const double low = llama3 ? low_freq_factor : beta_slow, high = llama3 ? high_freq_factor : beta_fast;
  require<InputError>(std::isfinite(high) && low > 0 && (llama3 ? low < high : low <= high),
                      llama3 ? name("rope_low_freq_factor", "low_freq_factor") : name("rope_beta_slow", "beta_slow"),
                      " is ", low, " and ",
                      llama3 ? name("rope_high_freq_factor", "high_freq_factor") : name("rope_beta_fast", "beta_fast"),
                      " is ", high, "; the first must be above 0 and ", llama3 ? "below" : "at most", " the second");
  require<InputError>(std::isfinite(attention_factor) && attention_factor >= 0,
                      name("rope_attention_factor", "attention_factor"), " is ", attention_factor,
                      naming == Naming::keys ? "; it must be above 0, or absent" : "; it must be 0 or above");
}

device::RotaryScaling RopeConfig::scaling(double theta, std::int64_t head_dim) const {
  using Kind = device::RotaryScaling::Kind;
  const auto original = static_cast<double>(original_positions), width = static_cast<double>(head_dim);
  if (type == "linear") return {.kind = Kind::linear, .factor = factor};
  if (type == "llama3")
    return {
        .kind = Kind::llama3, .factor = factor, .low = low_freq_factor, .high = high_freq_factor, .original = original};
  if (type != "yarn") return {};
  const auto pair_of = [&](double turns) {  // pair with this many turns in the original positions
    return width * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  const double low = std::max(std::floor(pair_of(beta_fast)), 0.0);
  const double high = std::min(std::ceil(pair_of(beta_slow)), width - 1);
  return {.kind = Kind::yarn,
          .factor = factor,
          .low = low,
          .high = low == high ? high + 0.001 : high,
          .original = original,
          .magnitude = attention_factor > 0 ? attention_factor : 0.1 * std::log(factor) + 1};
}

std::string LlamaConfig::unmatched_target() const {
  constexpr std::array projections = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                      "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
  if (!lora.on()) return {};
  for (const std::string& pattern : lora.patterns()) {
    const auto matches = [&](const char* projection) {
      for (std::int64_t layer = 0; layer < layers; ++layer)
        if (LoraConfig::matches(pattern, message("model.layers.", layer, ".", projection))) return true;
      return false;
    };
    if (!std::ranges::any_of(projections, matches)) return pattern;
  }
  return {};
}

void LlamaConfig::validate() const {
  const LlamaConfig& c = *this;
  const std::array ranges = {Allowed{"vocabulary", c.vocab_size, std::int64_t{1} << 22},
                             Allowed{"hidden size", c.hidden_size, std::int64_t{1} << 17},
                             Allowed{"intermediate size", c.intermediate_size, std::int64_t{1} << 20},
                             Allowed{"number of layers", c.layers, 1024},
                             Allowed{"number of heads", c.heads, 1024},
                             Allowed{"number of key-value heads", c.kv_heads, 1024},
                             Allowed{"head dimension", c.head_dim, 512},
                             Allowed{"number of positions", c.max_position_embeddings, std::int64_t{1} << 24}};
  for (const Allowed& range : ranges)
    require<InputError>(range.value >= 1 && range.value <= range.most, "model: the ", range.name, " is ", range.value,
                        "; it must be 1 to ", range.most);
  require<InputError>(c.heads % c.kv_heads == 0, "model: ", c.heads, " heads are not divisible by ", c.kv_heads,
                      " key-value heads");
  require<InputError>(c.head_dim % 2 == 0, "model: the head dimension is ", c.head_dim,
                      "; rotary embedding turns pairs, so it must be even");
  require<InputError>(std::isfinite(c.rms_norm_eps) && c.rms_norm_eps > 0 && c.rms_norm_eps <= 1e-2,
                      "model: rms_norm_eps is ", c.rms_norm_eps, "; it must be above 0 and at most 0.01");
  const Family* const own = find_family(c.family);
  if (own == nullptr)
    throw InputError(message("model: no family is called '", c.family, "'; ", suggestion(c.family, family_names())));
  require<InputError>(c.sliding_window >= 0 && c.full_layers >= 0, "model: the window is ", c.sliding_window,
                      " tokens and ", c.full_layers, " layers have none; neither may be below 0");
  const auto sees_window = [](const Family& family) { return family.window != Family::Window::none; };
  const bool has_window = sees_window(*own);
  const std::string with_window = families_text("or", sees_window);
  require<InputError>(c.sliding_window == 0 || has_window, "model: a ", c.family,
                      "'s tokens see no window; take --family ", with_window);
  require<InputError>(c.full_layers == 0 || has_window, "model: all layers of a ", c.family,
                      " are alike; take --family ", with_window);
  c.rope.validate();
  validate_targets(c);
  require<InputError>(std::isfinite(c.rope_theta) && c.rope_theta > 1 && c.rope_theta <= 1e9, "model: rope_theta is ",
                      c.rope_theta, "; it must be above 1 and at most 1e9");
}

}  // namespace fsdp
