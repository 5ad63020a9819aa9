// SPDX-License-Identifier: Apache-2.0
/// @file
/// Llama, Mistral, Qwen2 and Qwen3 as a list of units: embedding, blocks, head. Names and conventions are Hugging
/// Face's.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <tessera/fsdp/models/llama_config.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/embedding.hpp>
#include <tessera/fsdp/nn/instances.hpp>
#include <tessera/fsdp/nn/loss_head.hpp>
#include <tessera/fsdp/nn/recomputed.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/fsdp/nn/transformer_block.hpp>

namespace fsdp {

/// A Llama: a Model (tessera/fsdp/models/model.hpp) that can generate.
template <class StackT>
class Llama {
 public:
  using Stack = StackT;
  using Local = typename Stack::Local;
  using Config = LlamaConfig;
  using Batch = TokenBatch;
  using Entry = nn::RotaryEmbedding<Local>;
  using Block = nn::Recomputed<nn::TransformerBlock<Local>, Local>;
  using Head = nn::LossHead<Local>;
  /// The same model on another stack, for dry runs.
  template <class Other>
  using On = Llama<Other>;

  /// Throws InputError if the config is invalid.
  explicit Llama(const LlamaConfig& config, UnitOptions units = {}) : config_(config), units_(std::move(units)) {
    config.validate();
    if constexpr (has_float_weights<typename Local::Precision>) {
      const Parameter matrix = unit_of<Head::template FieldsOf>("head", head().parameters()).parameters.back();
      float_head_ =
          units_.precision.contains("head", matrix) || (config.tied && units_.precision.contains("embedding", matrix));
    }
    if (!config.lora.on()) return;
    for (int index = 0; index < blocks(); ++index)
      for (const nn::Parameter& parameter : nn::flatten<Block::template FieldsOf>(block(index).parameters()))
        adapter_weights_ += parameter.adapter ? parameter.shape.numel() : 0;
  }

  /// Members that every Model has.
  /// @{
  const LlamaConfig& config() const { return config_; }
  const UnitOptions& units() const { return units_; }
  std::int64_t hidden() const { return config_.hidden_size; }
  /// @}
  /// Whether training steps draw random numbers, so that a graph of one step cannot replay another.
  bool draws_random_numbers() const { return config_.adapters().dropout > 0; }

  /// Returns the embedding, which also computes the rotary table for all blocks.
  Entry entry() const {
    return {{{}, config_.vocab_size, config_.hidden_size},
            config_.head_dim,
            static_cast<float>(config_.rope_theta),
            config_.rope.scaling(config_.rope_theta, config_.head_dim)};
  }
  int blocks() const { return static_cast<int>(config_.layers); }  ///< number of layers
  /// Returns block `index`. All blocks have the same parameters except adapters; the first ones may have no sliding
  /// window.
  Block block(int index) const {
    const std::string before = prefix(index);
    const auto eps = static_cast<float>(config_.rms_norm_eps);
    const std::int64_t alive = units_.recompute ? 1 : config_.layers;  // blocks whose activations are alive together
    return {{{},
             {{},
              config_.hidden_size,
              config_.heads,
              config_.kv_heads,
              config_.head_dim,
              eps,
              config_.window(index),
              config_.biases(),
              config_.head_norms(),
              {config_.lora.paths<3>(before, {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}),
               config_.lora.paths<1>(before, {"self_attn.o_proj"})}},
             {{},
              config_.hidden_size,
              config_.intermediate_size,
              eps,
              alive,
              {config_.lora.paths<2>(before, {"mlp.gate_proj", "mlp.up_proj"}),
               config_.lora.paths<1>(before, {"mlp.down_proj"})}}},
            units_.recompute};
  }
  /// Returns the head: final norm, logits and loss.
  Head head() const {
    const auto eps = static_cast<float>(config_.rms_norm_eps);
    return {{}, config_.vocab_size, config_.hidden_size, eps, config_.tied, float_head_};
  }
  /// Returns the prefix of the names of block `index`'s parameters.
  std::string prefix(int index) const { return "model.layers." + std::to_string(index) + "."; }

  /// Throws InputError if the model cannot use the batch.
  void validate(const Batch& batch, std::int64_t sequence_length) const {
    batch.validate(sequence_length, config_.vocab_size);
  }
  /// Returns a batch of this shape whose memory cannot be read, for dry runs.
  Batch unread_batch(std::int64_t sequences, std::int64_t sequence_length) const {
    return Batch::unread(sequences, sequence_length);
  }

  /// Returns the model FLOPs of training on `tokens`, without recomputation. Each token and matmul weight counts 6, or
  /// 4 for a weight that adapters freeze, which has no gradient. Causal attention counts (2 forward + 4 backward) x
  /// heads x head_dim x length^2 per document and layer: PaLM's convention, halved for the causal mask. The pairs that
  /// a sliding window masks are subtracted as if all documents had the mean length, weighted by length. `squares`: the
  /// sum of length^2 over documents.
  double flops(std::int64_t tokens, std::int64_t squares) const {
    const LlamaConfig& c = config_;
    const double matmul_weights =
        static_cast<double>(c.layers) *
            (static_cast<double>(c.hidden_size) * static_cast<double>(2 * (c.heads + c.kv_heads) * c.head_dim) +
             3.0 * static_cast<double>(c.hidden_size) * static_cast<double>(c.intermediate_size)) +
        static_cast<double>(c.vocab_size) * static_cast<double>(c.hidden_size);
    double seen = 0;  // sum over layers, in units of `squares`
    for (int layer = 0; layer < blocks(); ++layer) {
      const double length = tokens > 0 ? static_cast<double>(squares) / static_cast<double>(tokens) : 0;
      const auto window = static_cast<double>(c.window(layer));
      const bool hides = window > 0 && window < length;
      seen += hides ? window * (2 * length - window) / (length * length) : 1;
    }
    const double attention = 6.0 * seen * static_cast<double>(c.heads * c.head_dim) * static_cast<double>(squares);
    const double weights =
        c.lora.on() ? 4.0 * matmul_weights + 6.0 * static_cast<double>(adapter_weights_) : 6.0 * matmul_weights;
    return weights * static_cast<double>(tokens) + attention;
  }

  /// Returns nullopt if this model uses a stored tensor, else the reason why it does not, or "" if no warning is
  /// needed. Like `transformers`, the model recomputes inv_freq from config.json; older versions stored it rounded and
  /// before scaling.
  std::optional<std::string> ignored(const std::string& name) const {
    return name.ends_with(".rotary_emb.inv_freq") || copied(name) ? std::optional<std::string>("") : std::nullopt;
  }
  /// A tied head may be stored in addition to the embedding.
  std::optional<std::string> copied(const std::string& name) const {
    if (config_.tied && name == "lm_head.weight") return "model.embed_tokens.weight";
    return std::nullopt;
  }

 private:
  LlamaConfig config_;
  UnitOptions units_;
  std::int64_t adapter_weights_ = 0;
  bool float_head_ = false;
};

}  // namespace fsdp
