// SPDX-License-Identifier: Apache-2.0
/// @file
/// Families of models that a LlamaConfig describes: how each differs from a Llama, in its blocks and in its
/// config.json.
///
/// To add one, write src/fsdp/models/families/NAME.cpp, and list it in src/fsdp/models/families/families.cpp. Error
/// messages list the families from there; help texts and docs/models.md name them, too.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

/// A family: `model_type` of config.json. Defaults are those of `transformers` for keys that a config.json omits.
struct Family {
  /// Which layers use sliding-window attention.
  enum class Window : std::uint8_t {
    none,     ///< no layer: `sliding_window` is ignored
    always,   ///< all layers, or those in `layer_types`, with a window of `sliding_window` tokens
    by_flag,  ///< if `use_sliding_window` is true, all layers after the first `max_window_layers`
  };

  std::string_view name;          ///< `model_type`, and the value of --family
  std::string_view architecture;  ///< the name of the class in `transformers`, without ForCausalLM
  bool biases = false;            ///< whether q, k and v have biases
  bool head_norms = false;        ///< whether each head of q and k is normalised before rotation
  Window window = Window::none;
  std::int64_t positions = 0;        ///< default of `max_position_embeddings`
  std::int64_t kv_heads = 0;         ///< default of `num_key_value_heads`; 0 for the number of heads
  bool kv_heads_may_be_null = true;  ///< whether null is valid; null stands for the number of heads
  std::int64_t head_dim = 0;  ///< default of `head_dim`, null is invalid; 0: default and null are hidden_size / heads
  bool has_attention_bias = false;  ///< whether the family has the key `attention_bias`; only false is supported
  bool has_mlp_bias = false;        ///< the same for `mlp_bias`
};

/// Returns all families, with the Llama first.
std::span<const Family* const> families();
/// Returns the names of all families.
std::vector<std::string> family_names();
/// Returns the names of the families that match a predicate, such as "mistral, qwen2 or qwen3"; `conjunction` precedes
/// the last one.
std::string families_text(std::string_view conjunction, bool (*matches)(const Family&) = nullptr);
/// Returns the family with this name, or nullptr if there is none.
const Family* find_family(std::string_view name);

}  // namespace fsdp
