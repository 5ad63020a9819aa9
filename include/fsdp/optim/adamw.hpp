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
  double sum = 0;
  for (const auto& piece : module.pieces())
    if (piece.owned && piece.trainable)
      Device::sum_of_squares(module.stream(), piece.gradient, Tensor<double>(&sum, {1}));
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
        first_(module.ledger(), device::MemoryKind::optimizer, bytes()),
        second_(module.ledger(), device::MemoryKind::optimizer, bytes()) {}

  /// Steps done; set after the moments were loaded.
  std::int64_t steps = 0;

  /// One step on the gradients of the module, scaled by min(1, clip / (norm + 1e-6)).
  void step(double lr, double norm) {
    ++steps;
    device::AdamWStep constants{
        .lr = static_cast<float>(lr),
        .beta1 = static_cast<float>(options_.beta1),
        .beta2 = static_cast<float>(options_.beta2),
        .eps = static_cast<float>(options_.eps),
        .weight_decay = 0,
        .gradient_scale = options_.clip > 0 ? static_cast<float>(std::min(1.0, options_.clip / (norm + 1e-6))) : 1.0f,
        .correction1 = static_cast<float>(1 - std::pow(options_.beta1, static_cast<double>(steps))),
        .correction2 = static_cast<float>(1 - std::pow(options_.beta2, static_cast<double>(steps)))};
    for (const Piece& piece : module_->pieces()) {
      if (!piece.trainable) continue;
      constants.weight_decay = piece.parameter->shape.rank == 2 ? static_cast<float>(options_.weight_decay) : 0.0f;
      Device::adamw(module_->stream(), constants, piece.main, first_moment(piece), second_moment(piece), piece.gradient,
                    rounded(piece));
    }
  }

  Tensor<float> first_moment(const Piece& piece) const { return view(first_, piece); }
  Tensor<float> second_moment(const Piece& piece) const { return view(second_, piece); }

 private:
  using Block = device::Block<Device>;

  std::int64_t bytes() const {
    return checked_multiply(module_->trained_size(), static_cast<std::int64_t>(sizeof(float)));
  }
  static Tensor<float> view(const Block& block, const Piece& piece) {
    return {reinterpret_cast<float*>(block.data()) + piece.resting, piece.main.shape()};
  }
  static Tensor<bf16> rounded(const Piece& piece) {
    if constexpr (std::is_same_v<typename Module::Compute, bf16>)
      return piece.model;
    else
      return {};
  }

  Module* module_;
  AdamWOptions options_;
  Block first_;
  Block second_;
};

}  // namespace fsdp::optim
