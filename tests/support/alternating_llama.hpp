// SPDX-License-Identifier: Apache-2.0
/// @file
/// A Llama whose blocks alternate between two kinds: attention only, and MLP only.
#pragma once

#include <string>

#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/nn/one_of.hpp>

namespace fsdp::test {

/// An MLP with its norm as a separate block, next to blocks that read a Shared.
template <class L, class SharedT>
struct MlpBlock : nn::ResidualMlp<L> {
  using Mlp = nn::ResidualMlp<L>;
  using typename Mlp::Compute;
  using Shared = SharedT;

  void forward(nn::Context<L>& context, const Shared&, const typename Mlp::Weights& weights, typename Mlp::Saved& saved,
               Tensor<const Compute> x, Tensor<Compute> y) const {
    Mlp::forward(context, weights, saved, x, y);
  }
  void backward(nn::Context<L>& context, const Shared&, const typename Mlp::Weights& weights,
                const typename Mlp::Gradients& gradients, const typename Mlp::Saved& saved, Tensor<Compute> dy) const {
    Mlp::backward(context, weights, gradients, saved, dy);
  }
};

/// Parameter names and arithmetic are Llama's; each block is split in two.
template <class StackT>
class AlternatingLlama : public Llama<StackT> {
 public:
  using Llama<StackT>::Llama;
  using Local = typename StackT::Local;
  using Attention = nn::ResidualAttention<Local>;
  using Mlp = MlpBlock<Local, nn::RotaryTable>;
  using Block = nn::OneOf<Attention, Mlp>;
  template <class Other>
  using On = AlternatingLlama<Other>;

  int blocks() const { return 2 * Llama<StackT>::blocks(); }
  Block block(int index) const {
    const auto whole = Llama<StackT>::block(index / 2).block;
    if (index % 2 == 0) return whole.attention;
    return Mlp{whole.mlp};
  }
  std::string prefix(int index) const { return Llama<StackT>::prefix(index / 2); }
};

}  // namespace fsdp::test
