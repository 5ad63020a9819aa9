// SPDX-License-Identifier: Apache-2.0
/// @file
/// The training loop without the library: unsharded tensors on one thread, and AdamW with the clipping of
/// `Sharded::step`, written with Eigen. From Tessera it uses only the declarations of tensors. Its passes and uses have
/// the interface that examples/14_eigen_unet/unet.hpp requires.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <Eigen/Core>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>

namespace fsdp::bench::foreign {

/// Units whose tensors have unique names.
class BareLoop {
  using Values = Eigen::ArrayXf;

  struct Whole {
    Shape shape;
    bool decays = false;
    bool written = false;
    Values weight, gradient, first, second;
  };

 public:
  BareLoop(const std::vector<Unit>& units, const optim::AdamW& rule, double clip) : rule_(rule), clip_(clip) {
    for (const Unit& unit : units) {
      auto& own = units_.emplace_back();
      for (const Parameter& parameter : unit.parameters) {
        const Values zero = Values::Zero(parameter.shape.numel());
        own.push_back({.shape = parameter.shape,
                       .decays = parameter.decays,
                       .weight = zero,
                       .gradient = zero,
                       .first = zero,
                       .second = zero});
      }
    }
  }

  /// Returns a weight's memory, for initialisation.
  Tensor<float> weight(int unit, std::size_t index) {
    Whole& own = units_[static_cast<std::size_t>(unit)][index];
    return {own.weight.data(), own.shape};
  }

  class Use {
   public:
    explicit Use(std::vector<Whole>& tensors) : tensors_(tensors) {}
    Tensor<const float> weight(std::size_t index) const {
      return {tensors_[index].weight.data(), tensors_[index].shape};
    }
    GradientView<float> gradient(std::size_t index) const {
      Whole& own = tensors_[index];
      return {{own.gradient.data(), own.shape}, &own.written};
    }

   private:
    std::vector<Whole>& tensors_;
  };
  Use forward(int unit) { return Use(units_[static_cast<std::size_t>(unit)]); }
  Use backward(int unit) { return forward(unit); }
  Use both(int unit) { return forward(unit); }

  /// Runs AdamW on the gradients of one forward and backward. The next ones overwrite these gradients.
  void step(double lr) {
    double squares = 0;
    for (const auto& unit : units_)
      for (const Whole& own : unit) squares += own.gradient.cast<double>().square().sum();
    const auto scale = static_cast<float>(std::min(1.0, clip_ / (std::sqrt(squares) + 1e-6)));
    ++taken_;
    const auto b1 = static_cast<float>(rule_.beta1), b2 = static_cast<float>(rule_.beta2);
    const auto eps = static_cast<float>(rule_.eps);
    const auto size = static_cast<float>(lr / (1 - std::pow(static_cast<double>(b1), taken_)));
    const auto root = static_cast<float>(1 / std::sqrt(1 - std::pow(static_cast<double>(b2), taken_)));
    for (auto& unit : units_)
      for (Whole& own : unit) {
        const auto kept = static_cast<float>(own.decays ? 1 - lr * rule_.weight_decay : 1.0);
        own.first = b1 * own.first + (1 - b1) * scale * own.gradient;
        own.second = b2 * own.second + (1 - b2) * (scale * own.gradient).square();
        own.weight = kept * own.weight - size * own.first / (root * own.second.sqrt() + eps);
        own.written = false;
      }
  }

 private:
  optim::AdamW rule_;
  double clip_;
  std::vector<std::vector<Whole>> units_;
  std::int64_t taken_ = 0;
};

}  // namespace fsdp::bench::foreign
