// SPDX-License-Identifier: Apache-2.0
/// @file
/// Embedding and head under test, with their memory on any device.
#pragma once

#include <tessera/fsdp/nn/embedding.hpp>
#include <tessera/fsdp/nn/loss_head.hpp>

#include "unit.hpp"

namespace fsdp::nn::reference {

/// A head with its weights, gradients and hidden states. The loss starts at `initial_loss`.
template <class Device, class Precision>
class Head {
 public:
  using L = Local<Device, Precision>;
  static constexpr double initial_loss = 3;

  TestRank<Device> rank;
  LossHead<L> module;
  ModuleFields<Device, LossHead<L>> fields;
  Slot<Device, typename L::Compute> stream;  // x, dx: [T, H] each
  Slot<Device, typename L::Compute> logits;  // [T, V]
  Slot<Device, std::int32_t> targets;        // [T]
  Slot<Device, double> loss_slot;            // [1]
  int polls = 0;
  Context<L> context;

  Head(const Sizes& sizes, const Run<>& run)
      : rank(run.threads),
        module{{}, sizes.vocabulary, sizes.hidden, sizes.eps},
        fields(module, run.placing),
        stream(std::vector<Shape>(2, {sizes.tokens(), sizes.hidden}), Placing::padded),
        logits(Shape{sizes.tokens(), sizes.vocabulary}),
        targets(Shape{sizes.tokens()}),
        loss_slot(Shape{1}),
        context{.arena = rank.arena,
                .stream = rank.stream,
                .plans = std::make_shared<TilePlans>(run.tiling),
                .sequences = sizes.sequences,
                .sequence_length = sizes.length,
                .poll = [](void* count) { ++*static_cast<int*>(count); },
                .poll_state = &polls} {
    if constexpr (has_float_weights<Precision>) module.in_float = fields.weights.is_float(1);
    using Dry = Local<device::MetaFor<Device>, Precision>;
    const LossHead<Dry> dry{{}, sizes.vocabulary, sizes.hidden, sizes.eps, false, module.in_float};
    add_dry_run<Dry>(*context.plans, dry, run.threads);
  }
  /// Sets the weights, and returns them as rounded.
  ValueList set_weights() {
    fields.weights.set(module_weights<typename L::Compute>(module));
    return fields.weights.all_values();
  }
  void loss(float scale) {
    module.loss(context, fields.weight_views(), fields.gradient_views(), stream[0], targets[0], scale, stream[1],
                loss_slot[0]);
  }
  void loss_only() { module.loss_only(context, fields.weight_views(), stream[0], targets[0], loss_slot[0]); }
  void all_logits() { module.logits(context, fields.weight_views(), stream[0], logits[0]); }
};

/// An embedding with its table, gradient, tokens and residual stream.
template <class Device, class Precision>
class Entry {
 public:
  using L = Local<Device, Precision>;

  TestRank<Device> rank;
  Embedding<L> module;
  ModuleFields<Device, Embedding<L>> fields;
  Slot<Device, typename L::Compute> stream;  // y, dy: [T, H] each
  Slot<Device, std::int32_t> tokens;         // [T]
  Context<L> context;

  Entry(const Sizes& sizes, const Run<>& run)
      : rank(run.threads),
        module{{}, sizes.vocabulary, sizes.hidden},
        fields(module, run.placing),
        stream(std::vector<Shape>(2, {sizes.tokens(), sizes.hidden}), Placing::padded),
        tokens(Shape{sizes.tokens()}),
        context{
            .arena = rank.arena, .stream = rank.stream, .sequences = sizes.sequences, .sequence_length = sizes.length} {
  }
  void forward() { module.forward(context, fields.weight_views(), tokens[0], stream[0]); }
  void backward() { module.backward(context, fields.gradient_views(), tokens[0], stream[1]); }
};

}  // namespace fsdp::nn::reference
