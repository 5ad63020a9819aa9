// SPDX-License-Identifier: Apache-2.0
/// @file
/// AdamW on shards, and clipping by the global gradient norm.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <comm/collectives.hpp>
#include <fsdp/core/tensor.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/operations.hpp>
#include <fsdp/sharded_module.hpp>

namespace fsdp::optim {

/// Constants of a run. Decay applies to tensors of rank 2.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 0;  ///< largest global gradient norm; 0 is off
};

/// The global L2 norm of the gradients, the same on every rank: sums of squares in double, each element counted once.
template <class Model>
double gradient_norm(ShardedModule<Model>& module) {
  using Device = typename ShardedModule<Model>::Device;
  typename Device::Arena::Frame frame(module.arena());
  const auto squares = frame.template allocate<double>({1});
  double sum = 0;
  device::move<Device>(module.stream(), &sum, squares.data(), 1);
  for (const auto& piece : module.pieces())
    if (piece.owned && piece.trainable) Device::sum_of_squares(module.stream(), piece.gradient, squares);
  device::move<Device>(module.stream(), squares.data(), &sum, 1);
  module.synchronize();
  if (module.communicator().size() > 1) sum = comm::sum_over_ranks(module.communicator(), sum, {"gradient norm"});
  return std::sqrt(sum);
}

/// Moments live where the main weights do. One pass reads and writes each element once, the compute weights included.
/// Source: Loshchilov and Hutter 2019.
template <class ModelT>
class AdamW {
 public:
  using Module = ShardedModule<ModelT>;
  using Device = typename Module::Device;
  using Piece = typename Module::Piece;

  AdamW(Module& module, const AdamWOptions& options)
      : module_(&module),
        options_(options),
        first_(ledger(module), device::MemoryKind::optimizer, bytes()),
        second_(ledger(module), device::MemoryKind::optimizer, bytes()) {
    if constexpr (Module::Group::offloaded) {
      for (const Piece& piece : module.pieces()) chunk_ = std::max(chunk_, piece.main.numel());
      chunk_ = round_up(std::min(chunk_, largest_chunk), device::alignment);
      staging_ = {ledger(module), device::MemoryKind::optimizer,
                  chunk_ * std::int64_t{sizeof(float) + sizeof(Compute)}};
    }
  }

  /// Steps done; set after the moments were loaded.
  std::int64_t steps = 0;

  /// One step on the gradients of the module, which were made with `loss_scale`, scaled by
  /// min(1, clip / (norm + 1e-6)); `norm` is that of the unscaled gradients.
  void step(double lr, double norm, double loss_scale = 1) {
    ++steps;
    const double clipped = options_.clip > 0 ? std::min(1.0, options_.clip / (norm + 1e-6)) : 1.0;
    device::AdamWStep constants{
        .lr = static_cast<float>(lr),
        .beta1 = static_cast<float>(options_.beta1),
        .beta2 = static_cast<float>(options_.beta2),
        .eps = static_cast<float>(options_.eps),
        .weight_decay = 0,
        .gradient_scale = static_cast<float>(clipped / loss_scale),
        .correction1 = static_cast<float>(1 - std::pow(options_.beta1, static_cast<double>(steps))),
        .correction2 = static_cast<float>(1 - std::pow(options_.beta2, static_cast<double>(steps)))};
    for (const Piece& piece : module_->pieces()) {
      if (!piece.trainable) continue;
      constants.weight_decay = piece.parameter->shape.rank == 2 ? static_cast<float>(options_.weight_decay) : 0.0f;
      if constexpr (Module::Group::offloaded)
        step_far(constants, piece);
      else
        Device::adamw(module_->stream(), constants, piece.main, first_moment(piece), second_moment(piece),
                      piece.gradient, rounded(piece.model));
    }
    module_->note_weights_written();
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
    return Module::Group::offloaded ? module.far_ledger() : module.ledger();
  }

  std::int64_t bytes() const {
    return checked_multiply(module_->trained_size(), static_cast<std::int64_t>(sizeof(float)));
  }
  static Tensor<float> view(const Block& block, const Piece& piece) {
    if (!piece.trainable) return {};
    return {reinterpret_cast<float*>(block.data()) + piece.resting, piece.main.shape()};
  }
  static Tensor<bf16> rounded(Tensor<Compute> model) {
    if constexpr (std::is_same_v<Compute, bf16>)
      return model;
    else
      return {};
  }

  /// Gradients go to far memory chunk by chunk, are used there, and the stepped weights come back.
  void step_far(const device::AdamWStep& constants, const Piece& piece) {
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
      Space::adamw(stream, constants, cut(piece.main), cut(first_moment(piece)), cut(second_moment(piece)),
                   Tensor<const float>(gradient), rounded(stepped));
      if constexpr (std::is_same_v<Compute, bf16>)
        Space::template transfer<Compute>(stream, stream, stepped, cut(piece.model));
      else
        Space::template transfer<Compute>(stream, stream, cut(piece.main), cut(piece.model));
    }
  }

  Module* module_;
  AdamWOptions options_;
  Block first_;
  Block second_;
  Block staging_;  ///< where offloaded: a chunk of gradients, and of stepped weights
  std::int64_t chunk_ = 0;
};

}  // namespace fsdp::optim
