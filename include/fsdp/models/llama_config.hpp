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

#include <fsdp/models/named_shape.hpp>

namespace fsdp {

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

  friend bool operator==(const LlamaConfig&, const LlamaConfig&) = default;
};

/// Names that `llama_preset` knows, smallest model first.
std::vector<std::string> llama_preset_names();

/// A preset's sizes. Throws InputError with the nearest name for any other.
LlamaConfig llama_preset(std::string_view name);

/// Throws InputError with one sentence about the first size that cannot work.
void validate(const LlamaConfig& config);

/// Hugging Face's config.json, `source` naming it in messages. What this model cannot compute (another model_type or
/// activation, biases, scaled rotary embeddings, quantised weights) is refused by name; other keys are ignored.
LlamaConfig parse_llama_config(std::string_view json, const std::string& source);

/// `folder`/config.json, at most 1 MB.
LlamaConfig read_llama_config(const std::filesystem::path& folder);

/// The config.json that `transformers` opens, with a newline at its end.
std::string to_json(const LlamaConfig& config);

/// Every parameter in Hugging Face's order; lm_head.weight is absent where tied.
std::vector<NamedShape> parameter_list(const LlamaConfig& config);

/// Elements of all parameters.
std::int64_t parameter_count(const LlamaConfig& config);

}  // namespace fsdp
