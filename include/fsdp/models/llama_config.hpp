// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sizes of a Llama, or of a model that differs from it by values alone, and their two written forms: presets, and
/// Hugging Face's config.json.
///
/// Not here: the computation (models/llama.hpp). To add a preset: a row of the table in src/models/llama_config.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/device/operations/rope.hpp>
#include <fsdp/models/config_values.hpp>
#include <fsdp/models/lora_config.hpp>

namespace fsdp {

/// How rotary positions are scaled, under the names that `transformers` gives it all.
struct RopeConfig {
  std::string type = "default";  ///< default, linear, llama3 or yarn
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  ///< of llama3
  double beta_fast = 32, beta_slow = 1;              ///< of yarn
  double attention_factor = 0;                       ///< of yarn; 0: 0.1 ln(factor) + 1
  std::int64_t original_positions = 0;               ///< of llama3 and yarn: before they were scaled

  /// For heads of this width. Throws nothing that LlamaConfig::validate has let through.
  device::RotaryScaling scaling(double theta, std::int64_t head_dim) const;
};

/// See models/model.hpp for what a config has. The families differ by values: mistral's tokens see a window, qwen2's q,
/// k and v have biases, qwen3's heads of q and k are normalised.
struct LlamaConfig {
  std::string family = "llama";  ///< model_type: llama, mistral, qwen2 or qwen3
  std::int64_t vocab_size = 256;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< divides heads
  std::int64_t head_dim = 0;  ///< even; heads x head_dim need not be hidden_size
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000.0;
  bool tied = false;  ///< the head uses the embedding's weight
  std::int64_t max_position_embeddings = 4096;
  std::int64_t sliding_window = 0;  ///< tokens that one sees at most, itself included; 0: all before it
  std::int64_t full_layers = 0;     ///< the first of them, whose tokens see all whatever the window (max_window_layers)
  RopeConfig rope = {};
  LoraConfig lora = {};  ///< of all projections: q, k, v, o, gate, up and down
  /// Keys of a config.json that say nothing of the computation, as a JSON object: those that were read, or a new one's.
  std::string other_keys = R"({"bos_token_id":0,"eos_token_id":0})";

  /// Whether q, k and v have biases.
  bool biases() const { return family == "qwen2"; }
  /// Whether each head of q and k is normalised.
  bool head_norms() const { return family == "qwen3"; }
  /// Tokens that one of this layer sees at most; 0: all before it.
  std::int64_t window(int layer) const { return layer < full_layers ? 0 : sliding_window; }

  /// Hugging Face's config.json, `source` naming it in messages. What this model cannot compute (another model_type or
  /// activation, other biases, other kinds of rotary positions, quantised weights) is refused by name; other keys are
  /// kept for `write`.
  static LlamaConfig parse(std::string_view json, const std::string& source);

  /// `folder`/config.json, at most 1 MB.
  static LlamaConfig read(const std::filesystem::path& folder);

  /// The config.json that `transformers` opens, with a newline at its end.
  std::string write() const;

  /// Throws InputError with one sentence about the first size that cannot work.
  void validate() const;

  /// Calls visitor(name, value, help) for each value.
  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("family", self.family, "llama, mistral, qwen2 or qwen3");
    visitor("vocab_size", self.vocab_size, "tokens that the model knows");
    visitor("hidden_size", self.hidden_size, "width of the residual stream");
    visitor("intermediate_size", self.intermediate_size, "width inside the MLP");
    visitor("layers", self.layers, "transformer blocks");
    visitor("heads", self.heads, "attention heads");
    visitor("kv_heads", self.kv_heads, "key-value heads; divides heads");
    visitor("head_dim", self.head_dim, "width of a head; even");
    visitor("tied", self.tied, "the head uses the embedding's weight");
    visitor("rms_norm_eps", self.rms_norm_eps, "added to the mean square in norms");
    visitor("rope_theta", self.rope_theta, "base of the rotary positions");
    visitor("max_position_embeddings", self.max_position_embeddings, "longest sequence");
    visitor("sliding_window", self.sliding_window, "tokens that one sees at most; 0: all before it");
    visitor("full_layers", self.full_layers, "first layers, which have no window");
    visitor("rope_type", self.rope.type, "how positions are scaled: default, linear, llama3 or yarn");
    visitor("rope_factor", self.rope.factor, "by how much");
    visitor("rope_low_freq_factor", self.rope.low_freq_factor, "llama3: turns below which all is scaled");
    visitor("rope_high_freq_factor", self.rope.high_freq_factor, "llama3: turns above which nothing is");
    visitor("rope_beta_fast", self.rope.beta_fast, "yarn: turns above which nothing is scaled");
    visitor("rope_beta_slow", self.rope.beta_slow, "yarn: turns below which all is");
    visitor("rope_attention_factor", self.rope.attention_factor, "yarn: of cos and sin; 0: 0.1 ln(factor) + 1");
    visitor("rope_original_positions", self.rope.original_positions, "llama3, yarn: positions before they were scaled");
    LoraConfig::visit(self.lora, visitor);
  }

  // What the command line asks for where a config has it (train/model_choice.hpp).
  static constexpr std::string_view default_preset = "small";
  /// See llama_preset_names and llama_preset.
  /// @{
  static std::vector<std::string> preset_names();
  static LlamaConfig preset(std::string_view name);
  /// @}
  /// Where rotary positions end.
  /// @{
  std::int64_t& longest_sequence() { return max_position_embeddings; }
  const std::int64_t& longest_sequence() const { return max_position_embeddings; }
  /// @}
  /// After values were changed one by one: head_dim follows hidden_size and heads unless it was changed itself.
  template <class Changed>
  void follow(const Changed& changed) {
    if ((changed("hidden_size") || changed("heads")) && !changed("head_dim") && heads > 0 && hidden_size % heads == 0)
      head_dim = hidden_size / heads;
  }

  /// Whether weights stay those of the same model where this value differs.
  static bool may_change(std::string_view name) { return name == "max_position_embeddings" || name == "lora_dropout"; }
  /// Whether a value of adapters may be added to a model that lacks it.
  static bool may_be_added(std::string_view name) { return LoraConfig::may_be_added(name); }
  /// What is added to a model: train/model_choice.hpp.
  LoraConfig& adapters() { return lora; }
  /// The same, of a config that is not changed.
  const LoraConfig& adapters() const { return lora; }

  /// Of all that the computation depends on.
  friend bool operator==(const LlamaConfig& a, const LlamaConfig& b) { return values_of(a) == values_of(b); }
};

/// Names that `llama_preset` knows, smallest model first.
std::vector<std::string> llama_preset_names();

/// A preset's sizes. Throws InputError with the nearest name for any other.
LlamaConfig llama_preset(std::string_view name);

inline std::vector<std::string> LlamaConfig::preset_names() { return llama_preset_names(); }
inline LlamaConfig LlamaConfig::preset(std::string_view name) { return llama_preset(name); }

}  // namespace fsdp
