// SPDX-License-Identifier: Apache-2.0
/// @file
/// GPT-2's entry: the sum of a token embedding and a position embedding.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/module.hpp>

#include "operations.hpp"

namespace gpt2 {

template <class V>
struct EmbeddingFields {
  V tokens, positions;  // [V, H], [P, H]
};

/// The entry. Backward does not need weights, so they are not gathered for it.
template <class L>
struct Embedding : fsdp::nn::ModuleTypes<L, EmbeddingFields> {
  using Types = fsdp::nn::ModuleTypes<L, EmbeddingFields>;
  using typename Types::Compute;
  using typename Types::Gradients;
  using typename Types::Parameters;
  using typename Types::Weights;
  using Context = fsdp::nn::Context<L>;

  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;
  std::int64_t hidden = 0;

  using Shared = fsdp::nn::Nothing;
  Shared share(Context&) const { return {}; }

  Parameters parameters() const {
    using fsdp::nn::Role;
    return {{.name = "/wte.weight", .shape = {vocabulary, hidden}, .role = Role::table},
            {.name = "/wpe.weight", .shape = {positions, hidden}, .role = Role::table}};
  }

  void forward(Context& context, const Weights& weights, Tensor<const std::int32_t> tokens, Tensor<Compute> y) const {
    using fsdp::device::enqueue;
    enqueue(context.stream, fsdp::device::Embedding<Compute>{.table = weights.tokens, .tokens = tokens, .out = y});
    enqueue(context.stream,
            AddPositions<Compute>{.positions = positions_of(context), .table = weights.positions, .y = y});
  }

  void backward(Context& context, const Gradients& gradients, Tensor<const std::int32_t> tokens,
                Tensor<const Compute> dy) const {
    using fsdp::device::enqueue;
    if (gradients.tokens.wanted())
      enqueue(context.stream,
              fsdp::device::EmbeddingBackward<Compute>{
                  .tokens = tokens, .dy = dy, .dtable = gradients.tokens.tensor, .write = gradients.tokens.next()});
    if (gradients.positions.wanted())
      enqueue(context.stream, PositionsGradient<Compute>{.positions = positions_of(context),
                                                         .dy = dy,
                                                         .dtable = gradients.positions.tensor,
                                                         .write = gradients.positions.next()});
  }

 private:
  static Positions positions_of(const Context& context) {
    return {.sequence_length = context.sequence_length, .documents = context.documents};
  }
};

}  // namespace gpt2
