// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sizes of a GPT-2, under the names of Hugging Face's config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace gpt2 {

/// The defaults are a small model over bytes. GPT-2's own sizes are 50257, 1024, 768, 12 and 12.
struct Gpt2Config {
  std::int64_t vocab_size = 256;
  std::int64_t n_positions = 256;
  std::int64_t n_embd = 64;
  std::int64_t n_layer = 2;
  std::int64_t n_head = 4;
  double layer_norm_epsilon = 1e-5;

  /// Parses the text of a config.json. `source`: its name in error messages. Throws fsdp::InputError, with the key, for
  /// values that this model does not support.
  static Gpt2Config parse(std::string_view json, const std::string& source);
  /// Reads `folder`/config.json.
  static Gpt2Config read(const std::filesystem::path& folder);
  /// Returns the text of a config.json that `transformers` can open.
  std::string write() const;
  /// Throws fsdp::InputError with a message about the first invalid size.
  void validate() const;

  std::int64_t intermediate() const { return 4 * n_embd; }
  std::int64_t head_dim() const { return n_embd / n_head; }

  // Optional, for flags (tessera/trainer/flags/model_choice.hpp): increases n_positions to --seq-len if needed.
  std::int64_t& longest_sequence() { return n_positions; }
  const std::int64_t& longest_sequence() const { return n_positions; }

  /// Calls visitor(name, value, help) for each value.
  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("vocab_size", self.vocab_size, "tokens that the model knows");
    visitor("n_positions", self.n_positions, "longest sequence");
    visitor("n_embd", self.n_embd, "width of the residual stream");
    visitor("n_layer", self.n_layer, "transformer blocks");
    visitor("n_head", self.n_head, "attention heads");
    visitor("layer_norm_epsilon", self.layer_norm_epsilon, "added to the variance in norms");
  }

  friend bool operator==(const Gpt2Config&, const Gpt2Config&) = default;
};

}  // namespace gpt2
