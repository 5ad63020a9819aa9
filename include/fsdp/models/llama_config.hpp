// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sizes of a Llama and their two written forms: presets, and Hugging Face's config.json.
///
/// Not here: the computation (models/llama.hpp). To add a preset: a row of the table in src/models/llama_config.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

/// See models/model.hpp for what a config has.
struct LlamaConfig {
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

  /// Hugging Face's config.json, `source` naming it in messages. What this model cannot compute (another model_type or
  /// activation, biases, scaled rotary embeddings, quantised weights) is refused by name; other keys are ignored.
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
  }

  // What the command line asks for where a config has it (train/model_choice.hpp).
  static constexpr std::string_view default_preset = "small";
  static std::vector<std::string> preset_names();
  static LlamaConfig preset(std::string_view name);
  std::int64_t& longest_sequence() { return max_position_embeddings; }
  const std::int64_t& longest_sequence() const { return max_position_embeddings; }
  /// After values were changed one by one: head_dim follows hidden_size and heads unless it was changed itself.
  template <class Changed>
  void follow(const Changed& changed) {
    if ((changed("hidden_size") || changed("heads")) && !changed("head_dim") && heads > 0 && hidden_size % heads == 0)
      head_dim = hidden_size / heads;
  }

  /// Whether weights stay those of the same model where this value differs.
  static bool may_change(std::string_view name) { return name == "max_position_embeddings"; }

  friend bool operator==(const LlamaConfig&, const LlamaConfig&) = default;
};

/// Names that `llama_preset` knows, smallest model first.
std::vector<std::string> llama_preset_names();

/// A preset's sizes. Throws InputError with the nearest name for any other.
LlamaConfig llama_preset(std::string_view name);

inline std::vector<std::string> LlamaConfig::preset_names() { return llama_preset_names(); }
inline LlamaConfig LlamaConfig::preset(std::string_view name) { return llama_preset(name); }

}  // namespace fsdp
