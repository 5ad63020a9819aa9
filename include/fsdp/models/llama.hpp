// SPDX-License-Identifier: Apache-2.0
/// @file
/// Llama as a list of units: embedding, equal blocks, head. Names and conventions are Hugging Face's.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/operations/rope.hpp>
#include <fsdp/models/llama_config.hpp>
#include <fsdp/module/stack.hpp>
#include <fsdp/module/units.hpp>
#include <fsdp/nn/embedding.hpp>
#include <fsdp/nn/instances.hpp>
#include <fsdp/nn/loss_head.hpp>
#include <fsdp/nn/recomputed.hpp>
#include <fsdp/nn/transformer_block.hpp>

namespace fsdp {

/// Model FLOPs of trained tokens, recomputation not counted: 6 a token and matmul weight, and causal attention's
/// 2 forward and 4 backward x heads x head_dim x length^2 a document and layer (the convention of PaLM, halved for the
/// causal mask). `squares`: the sum of length^2.
inline double model_flops(const LlamaConfig& config, std::int64_t tokens, std::int64_t squares) {
  const double matmul_weights =
      static_cast<double>(config.layers) *
          (static_cast<double>(config.hidden_size) *
               static_cast<double>(2 * (config.heads + config.kv_heads) * config.head_dim) +
           3.0 * static_cast<double>(config.hidden_size) * static_cast<double>(config.intermediate_size)) +
      static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden_size);
  const double attention =
      6.0 * static_cast<double>(config.layers * config.heads * config.head_dim) * static_cast<double>(squares);
  return 6.0 * matmul_weights * static_cast<double>(tokens) + attention;
}

template <class StackT>
class Llama {
 public:
  using Stack = StackT;
  using Local = typename Stack::Local;
  using Entry = nn::Embedding<Local>;
  using Block = nn::Recomputed<nn::TransformerBlock<Local>, Local>;
  using Head = nn::LossHead<Local>;
  /// The same model on another stack: what the dry run is made of.
  template <class Other>
  using On = Llama<Other>;

  static_assert(nn::EntryModule<Entry, Local> && nn::Module<Block, Local> && nn::LossModule<Head, Local>);

  /// Throws InputError where the sizes do not fit together.
  explicit Llama(const LlamaConfig& config, Units units = {}) : config_(config), units_(std::move(units)) {
    validate(config);
  }

  const LlamaConfig& config() const { return config_; }
  const Units& units() const { return units_; }
  std::int64_t hidden() const { return config_.hidden_size; }

  Entry entry() const { return {{}, config_.vocab_size, config_.hidden_size}; }
  int blocks() const { return static_cast<int>(config_.layers); }
  Block block() const {
    const auto eps = static_cast<float>(config_.rms_norm_eps);
    const std::int64_t alive = units_.recompute ? 1 : config_.layers;  // blocks whose activations are kept together
    return {{},
            {{},
             {{}, config_.hidden_size, config_.heads, config_.kv_heads, config_.head_dim, eps},
             {{}, config_.hidden_size, config_.intermediate_size, eps, alive}},
            units_.recompute};
  }
  Head head() const {
    return {{}, config_.vocab_size, config_.hidden_size, static_cast<float>(config_.rms_norm_eps), config_.tied};
  }
  /// Before the names of block `index`'s parameters.
  std::string prefix(int index) const { return "model.layers." + std::to_string(index) + "."; }

  /// The rotary table that all blocks read.
  Shape positions_shape(std::int64_t sequence_length) const { return {sequence_length, config_.head_dim}; }
  void fill_positions(typename Stack::Device::Stream& stream, Tensor<float> table) const {
    device::enqueue(stream, device::RotaryTable{.theta = static_cast<float>(config_.rope_theta), .table = table});
  }

 private:
  LlamaConfig config_;
  Units units_;
};

}  // namespace fsdp
