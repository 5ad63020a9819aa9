// SPDX-License-Identifier: Apache-2.0
/// @file
/// The config of a Llama, or of a model that differs from it only in config values. It comes from presets or from
/// Hugging Face's config.json.
///
/// The computation is in tessera/fsdp/models/llama.hpp. To add a preset, add a row to the table in
/// src/fsdp/models/llama_config.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/named_values.hpp>
#include <tessera/fsdp/device/compute/rope.hpp>
#include <tessera/fsdp/models/lora_config.hpp>

namespace fsdp {

/// The scaling of rotary positions. Names are those of `transformers`.
struct RopeConfig {
  /// Whether error messages identify values by their flags or by their keys in config.json.
  enum class Naming { flags, keys };
  std::string type = "default";  ///< default, linear, llama3 or yarn
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  ///< for llama3
  double beta_fast = 32, beta_slow = 1;              ///< for yarn
  double attention_factor = 0;                       ///< for yarn; 0 for the default, 0.1 ln(factor) + 1
  std::int64_t original_positions = 0;               ///< for llama3 and yarn: number of positions before scaling

  /// Returns the scaling for heads of this width. Does not throw if LlamaConfig::validate accepts the config.
  device::RotaryScaling scaling(double theta, std::int64_t head_dim) const;

  /// Throws InputError for the first invalid value. The message identifies it by its flag, or by its key in
  /// config.json.
  void validate(Naming naming = Naming::flags) const;
};

/// The config of a Llama (a ModelConfig, see tessera/fsdp/models/model.hpp), or of another family
/// (tessera/fsdp/models/family.hpp).
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
  std::int64_t sliding_window = 0;  ///< tokens that a token attends to, itself included; 0: no window
  std::int64_t full_layers = 0;     ///< number of first layers without a window (max_window_layers)
  RopeConfig rope = {};
  LoraConfig lora = {};  ///< adapters of any of the projections q, k, v, o, gate, up and down
  /// Keys of a config.json that do not affect the computation, as a JSON object: the keys read from a file, or the
  /// defaults.
  std::string other_keys = R"({"bos_token_id":0,"eos_token_id":0})";

  /// Whether q, k and v have biases.
  bool biases() const;
  /// Whether each head of q and k is normalised.
  bool head_norms() const;
  /// Returns the sliding window of a layer; 0 if it has none.
  std::int64_t window(int layer) const { return layer < full_layers ? 0 : sliding_window; }

  // JSON is read and written by tessera::model_files: src/fsdp/model_files/llama_json.cpp.
  /// Reads the text of Hugging Face's config.json; `source` is its name in messages. Throws InputError, which reports
  /// the key, for unsupported values (another model_type or activation, other biases, other kinds of rotary positions,
  /// quantised weights). Other keys are stored for `write`.
  static LlamaConfig parse(std::string_view json, const std::string& source);

  /// Reads `folder`/config.json, of at most 1 MB.
  static LlamaConfig read(const std::filesystem::path& folder);

  /// Returns the text of a config.json that `transformers` opens, with a newline at its end.
  std::string write() const;

  /// Throws InputError for the first invalid value.
  void validate() const;
  /// Returns the first pattern of the adapters' targets that matches no projection, or an empty string if all match.
  std::string unmatched_target() const;

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

  // Optional members, which the command line uses (tessera/trainer/flags/model_choice.hpp).
  static constexpr std::string_view default_preset = "small";
  /// See llama_preset_names and llama_preset.
  /// @{
  static std::vector<std::string> preset_names();
  static LlamaConfig preset(std::string_view name);
  /// @}
  /// Return the length of the longest sequence that rotary positions cover.
  /// @{
  std::int64_t& longest_sequence() { return max_position_embeddings; }
  const std::int64_t& longest_sequence() const { return max_position_embeddings; }
  /// @}
  /// Updates dependent values after others were changed: head_dim = hidden_size / heads, unless head_dim was changed
  /// too.
  template <class Changed>
  void follow(const Changed& changed) {
    if ((changed("hidden_size") || changed("heads")) && !changed("head_dim") && heads > 0 && hidden_size % heads == 0)
      head_dim = hidden_size / heads;
  }

  /// Whether this value may be changed for existing weights.
  static bool may_change(std::string_view name) { return name == "max_position_embeddings" || name == "lora_dropout"; }
  /// Whether this is a value of the adapters' config; adapters may be added to a model that has none.
  static bool may_be_added(std::string_view name) { return LoraConfig::may_be_added(name); }
  /// Returns the adapters' part of the config (tessera/trainer/flags/model_choice.hpp).
  LoraConfig& adapters() { return lora; }
  /// The same, read-only.
  const LoraConfig& adapters() const { return lora; }

  /// Compares all values that the computation depends on.
  friend bool operator==(const LlamaConfig& a, const LlamaConfig& b);
};

/// Compiled into the library.
extern template ConfigValues values_of(LlamaConfig);

/// Returns the names of all presets, smallest model first.
std::vector<std::string> llama_preset_names();

/// Returns a preset's config. Throws InputError for an unknown name and suggests the nearest one.
LlamaConfig llama_preset(std::string_view name);

inline std::vector<std::string> LlamaConfig::preset_names() { return llama_preset_names(); }
inline LlamaConfig LlamaConfig::preset(std::string_view name) { return llama_preset(name); }

}  // namespace fsdp
