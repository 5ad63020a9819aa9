// SPDX-License-Identifier: Apache-2.0
/// @file
/// Families of models that a LlamaConfig describes: how each differs from a Llama, in its blocks and in its
/// config.json.
///
/// To add one, write src/fsdp/models/families/NAME.cpp, and list it in src/fsdp/models/families/families.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

/// A family: `model_type` of config.json. Defaults are those of `transformers` for keys that a config.json omits.
struct Family {
  /// Which layers attend to a window of tokens alone.
  enum class Window : std::uint8_t {
    none,     ///< none: `sliding_window` has no meaning
    always,   ///< all, or by `layer_types`, as many as `sliding_window` tokens
    by_flag,  ///< if `use_sliding_window` is true, those after the first `max_window_layers`
  };

  std::string_view name;          ///< `model_type`, and the value of --family
  std::string_view architecture;  ///< the class of `transformers`, without ForCausalLM
  bool biases = false;            ///< of q, k and v
  bool head_norms = false;        ///< each head of q and k is normalised before its rotation
  Window window = Window::none;
  std::int64_t positions = 0;        ///< default of `max_position_embeddings`
  std::int64_t kv_heads = 0;         ///< default of `num_key_value_heads`; 0: as many as heads
  bool kv_heads_may_be_null = true;  ///< null: as many as heads
  std::int64_t head_dim = 0;  ///< default of `head_dim`, which may not be null; 0: hidden_size / heads, also for null
  bool has_attention_bias = false;  ///< `attention_bias` is a key of the family; only false can be computed
  bool has_mlp_bias = false;        ///< the same of `mlp_bias`
};

/// Returns all families, the Llama first.
std::span<const Family* const> families();
/// Returns their names.
std::vector<std::string> family_names();
/// Returns the family of a name; nullptr if there is none.
const Family* find_family(std::string_view name);

}  // namespace fsdp
