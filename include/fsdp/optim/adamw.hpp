// SPDX-License-Identifier: Apache-2.0
/// @file
/// AdamW on shards.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/operations.hpp>
#include <fsdp/module/sharded_module.hpp>
#include <fsdp/optim/step_control.hpp>

namespace fsdp::optim {

/// Constants of a run. Decay applies to tensors of rank 2.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 0;              ///< largest global gradient norm; 0 is off
  bool skips_overflow = false;  ///< of gradients, as with a loss scale; else one that is not finite ends all steps
};

/// Moments live where the main weights do. One pass reads and writes each element once, the compute weights included.
/// Source: Loshchilov and Hutter 2019.
template <class ModelT>
class AdamW {
 public:
  using Options = AdamWOptions;
  using Module = ShardedModule<ModelT>;
  using Device = typename Module::Device;
  using Piece = typename Module::Piece;

  AdamW(Module& module, const AdamWOptions& options)
      : module_(&module),
        options_(options),
        control_(module, {.clip = options.clip, .skips_overflow = options.skips_overflow}),
        first_(ledger(module), device::MemoryKind::optimizer, bytes()),
        second_(ledger(module), device::MemoryKind::optimizer, bytes()) {
    if constexpr (Module::Group::offloaded) {
      for (const Piece& piece : module.pieces()) chunk_ = std::max(chunk_, piece.main.numel());
      chunk_ = round_up(std::min(chunk_, largest_chunk), device::alignment);
      staging_ = {ledger(module), device::MemoryKind::optimizer,
                  chunk_ * std::int64_t{sizeof(float) + sizeof(Compute)}};
    }
  }

  /// What was decided of each step.
  StepControl<ModelT>& control() { return control_; }
  std::int64_t steps() const { return control_.steps(); }

  /// Queues one step on the gradients of the module; `loss` [1] is this rank's, on the device (Executor::loss).
  void step(Tensor<const double> loss, const device::StepInputs& inputs) {
    control_.begin(inputs);
    update(loss);
    control_.end();
  }
  /// What lies between the step's begin and its end: the same work for the device in every step.
  void update(Tensor<const double> loss) {
    control_.decide(loss);
    device::AdamWRules rules{.beta1 = options_.beta1, .beta2 = options_.beta2, .eps = static_cast<float>(options_.eps)};
    for (const Piece& piece : module_->pieces()) {
      if (!piece.trainable) continue;
      rules.weight_decay = piece.parameter->decays ? static_cast<float>(options_.weight_decay) : 0.0f;
      if constexpr (Module::Group::offloaded)
        step_offloaded(rules, piece);
      else
        device::enqueue(module_->stream(), device::AdamWStep<Compute>{.rules = rules,
                                                                      .step = control_.on_device(),
                                                                      .main = piece.main,
                                                                      .first_moment = first_moment(piece),
                                                                      .second_moment = second_moment(piece),
                                                                      .gradient = piece.gradient,
                                                                      .model = rounded(piece.model)});
    }
  }

  /// Empty where a piece is frozen.
  Tensor<float> first_moment(const Piece& piece) const { return view(first_, piece); }
  Tensor<float> second_moment(const Piece& piece) const { return view(second_, piece); }

 private:
  using Space = typename Module::Group::MainSpace;
  using Block = device::Block<Space>;
  using Compute = typename Module::Compute;
  static constexpr std::int64_t largest_chunk = 1 << 18;  // elements: 1 MiB of gradients on their way at a time

  static device::Ledger& ledger(Module& module) {
    return Module::Group::offloaded ? module.offload_ledger() : module.ledger();
  }

  std::int64_t bytes() const {
    return checked_multiply(module_->trained_size(), static_cast<std::int64_t>(sizeof(float)));
  }
  static Tensor<float> view(const Block& block, const Piece& piece) {
    if (!piece.trainable) return {};
    return {reinterpret_cast<float*>(block.data()) + piece.resting, piece.main.shape()};
  }
  /// What AdamW writes: nothing where the main weights are the model weights.
  static constexpr bool rounds = !std::is_same_v<Compute, float>;
  static Tensor<Compute> rounded(Tensor<Compute> model) { return rounds ? model : Tensor<Compute>(); }

  /// Gradients go to host memory chunk by chunk, are used there, and the stepped weights come back.
  void step_offloaded(const device::AdamWRules& rules, const Piece& piece) {
    auto& stream = module_->stream();
    float* const gradients = reinterpret_cast<float*>(staging_.data());
    Compute* const weights = reinterpret_cast<Compute*>(gradients + chunk_);
    const std::int64_t count = piece.main.numel();
    for (std::int64_t begin = 0; begin < count; begin += chunk_) {
      const Shape part{std::min(chunk_, count - begin)};
      const auto cut = [&]<class T>(Tensor<T> all) { return Tensor<T>(all.data() + begin, part); };
      const Tensor<float> gradient(gradients, part);
      const Tensor<Compute> stepped(weights, part);
      Space::template transfer<float>(stream, stream, cut(piece.gradient), gradient);
      device::enqueue(stream, device::AdamWStep<Compute>{.rules = rules,
                                                         .step = control_.on_device(),
                                                         .main = cut(piece.main),
                                                         .first_moment = cut(first_moment(piece)),
                                                         .second_moment = cut(second_moment(piece)),
                                                         .gradient = gradient,
                                                         .model = rounded(stepped)});
      if constexpr (rounds)
        Space::template transfer<Compute>(stream, stream, stepped, cut(piece.model));
      else
        Space::template transfer<Compute>(stream, stream, cut(piece.main), cut(piece.model));
    }
  }

  Module* module_;
  AdamWOptions options_;
  StepControl<ModelT> control_;
  Block first_;
  Block second_;
  Block staging_;  ///< where offloaded: a chunk of gradients, and of stepped weights
  std::int64_t chunk_ = 0;
};

}  // namespace fsdp::optim
