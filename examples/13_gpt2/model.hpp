// SPDX-License-Identifier: Apache-2.0
/// @file
/// GPT-2 (Radford et al. 2019) as a list of units. Parameters have the names of Hugging Face's GPT2Model.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/models/model.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/recomputed.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>

#include "attention.hpp"
#include "config.hpp"
#include "embedding.hpp"
#include "head.hpp"
#include "mlp.hpp"

namespace gpt2 {

template <class V>
struct BlockFields {
  AttentionFields<V> attention;
  MlpFields<V> mlp;
};

/// A transformer block: attention and MLP.
template <class L>
struct Block : nn::ModuleTypes<L, BlockFields> {
  using Types = nn::ModuleTypes<L, BlockFields>;
  using typename Types::Compute;
  using typename Types::Gradients;
  using typename Types::Parameters;
  using typename Types::Weights;
  using Shared = nn::Nothing;

  Attention<L> attention;
  Mlp<L> mlp;

  struct Saved {
    typename Attention<L>::Saved attention;
    typename Mlp<L>::Saved mlp;
  };

  Parameters parameters() const { return {attention.parameters(), mlp.parameters()}; }
  fsdp::tiling::TilePlan plan(nn::Context<L>& context) const { return nn::plan_of(context, mlp); }

  void forward(nn::Context<L>& context, const Shared&, const Weights& weights, Saved& saved, Tensor<const Compute> x,
               Tensor<Compute> y) const {
    const auto middle = context.template save<Compute>({context.tokens(), attention.hidden});  // [T, H]
    attention.forward(context, weights.attention, saved.attention, x, middle);
    mlp.forward(context, weights.mlp, saved.mlp, middle, y);
  }

  /// Recomputes the saved activations of forward before backward. Also computes the output, which is discarded.
  void replay(nn::Context<L>& context, const Shared& shared, const Weights& weights, Saved& saved,
              Tensor<const Compute> x) const {
    typename L::Frame frame(context.arena);
    forward(context, shared, weights, saved, x, frame.template allocate<Compute>(x.shape()));
  }

  void backward(nn::Context<L>& context, const Shared&, const Weights& weights, const Gradients& gradients,
                const Saved& saved, Tensor<Compute> dy) const {
    mlp.backward(context, weights.mlp, gradients.mlp, saved.mlp, dy);
    attention.backward(context, weights.attention, gradients.attention, saved.attention, dy);
  }
};

/// A Model (see tessera/fsdp/models/model.hpp) that can generate.
template <class StackT>
class Gpt2 {
 public:
  using Stack = StackT;
  using Local = typename Stack::Local;
  using Config = Gpt2Config;
  using Batch = fsdp::TokenBatch;
  using Entry = Embedding<Local>;
  using Block = nn::Recomputed<gpt2::Block<Local>, Local>;
  using Head = gpt2::Head<Local>;
  template <class Other>
  using On = Gpt2<Other>;

  explicit Gpt2(const Config& config, fsdp::UnitOptions units = {}) : config_(config), units_(std::move(units)) {
    config.validate();
  }

  const Config& config() const { return config_; }
  const fsdp::UnitOptions& units() const { return units_; }
  std::int64_t hidden() const { return config_.n_embd; }

  Entry entry() const { return {{}, config_.vocab_size, config_.n_positions, config_.n_embd}; }
  int blocks() const { return static_cast<int>(config_.n_layer); }
  /// All blocks are identical. Projections to the residual stream have smaller initial weights in deeper models.
  Block block(int) const {
    const double deviation = 0.02 / std::sqrt(2.0 * static_cast<double>(config_.n_layer));
    const std::int64_t alive = units_.recompute ? 1 : config_.n_layer;  // number of blocks with live activations
    return {{{},
             {{}, config_.n_embd, config_.n_head, eps(), deviation},
             {{}, config_.n_embd, config_.intermediate(), eps(), deviation, alive}},
            units_.recompute};
  }
  Head head() const { return {{}, config_.vocab_size, config_.n_embd, eps()}; }
  std::string prefix(int index) const { return "h." + std::to_string(index) + "."; }

  void validate(const Batch& batch, std::int64_t sequence_length) const {
    fsdp::require<fsdp::InputError>(sequence_length <= config_.n_positions, "a batch's sequences have ",
                                    sequence_length, " tokens; the model has ", config_.n_positions, " positions");
    batch.validate(sequence_length, config_.vocab_size);
  }
  Batch unread_batch(std::int64_t sequences, std::int64_t sequence_length) const {
    return Batch::unread(sequences, sequence_length);
  }

  /// FLOPs of a step, counted as in fsdp::Llama.
  double flops(std::int64_t tokens, std::int64_t squares) const {
    const auto layers = static_cast<double>(config_.n_layer), width = static_cast<double>(config_.n_embd);
    const double matmul_weights = layers * 12 * width * width + static_cast<double>(config_.vocab_size) * width;
    return 6 * matmul_weights * static_cast<double>(tokens) + 6 * layers * width * static_cast<double>(squares);
  }

  /// Returns the reason why a stored tensor is not used (empty text: without a warning), or nullopt if it is used. Not
  /// used are masks, which are identical in every file, and a head that is stored in addition to the embedding.
  std::optional<std::string> ignored(const std::string& name) const {
    const bool masks = name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
    return masks || copied(name) ? std::optional<std::string>("") : std::nullopt;
  }
  /// Returns the parameter of which an unused tensor must be a copy.
  std::optional<std::string> copied(const std::string& name) const {
    return name == "lm_head.weight" ? std::optional<std::string>("wte.weight") : std::nullopt;
  }

 private:
  float eps() const { return static_cast<float>(config_.layer_norm_epsilon); }

  Config config_;
  fsdp::UnitOptions units_;
};

}  // namespace gpt2
