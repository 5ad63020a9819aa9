// SPDX-License-Identifier: Apache-2.0
/// @file
/// A user-defined training loop with one selectable flaw: two element-wise layers in plain C++.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/fsdp/sharded.hpp>

namespace fsdp::foreign {

enum class LoopFlaw {
  none,
  overwrites,          ///< never adds to a gradient
  counts_calls,        ///< chooses its data by the number of calls
  forgets_a_gradient,  ///< omits the gradient of one tensor
  leaves_out_a_unit,   ///< omits the computation of a unit
  keeps_activations,   ///< in memory that an exception does not clear
  declares_more,       ///< declares units of a different size in each call
  divides_by_its_own,  ///< divides by the samples of the piece instead of those of the step
  divides_loss_alone,  ///< divides the loss by the samples of the step, and gradients by those of the piece
  stops_at_frozen,     ///< stops backward at a frozen unit and computes no gradient of the units before it
};

struct FlawedLoop {
  static inline LoopFlaw flaw = LoopFlaw::none;
  static inline thread_local std::vector<float> kept = {};  ///< inputs of the second layer
  static inline thread_local int calls = 0, declared = 0;   ///< number of calls of compute and units on a rank

  static constexpr int width = 5;

  static std::vector<Unit> units() {
    const std::int64_t more = flaw == LoopFlaw::declares_more ? 100 * declared++ : 0;
    return {{.name = "first", .parameters = {{.name = "a", .shape = {width}}, {.name = "b", .shape = {width + more}}}},
            {.name = "second", .parameters = {{.name = "c", .shape = {width}}}}};
  }

  template <class Gradient>
  static void put(const Gradient& gradient, std::int64_t i, float value, Write write) {
    if (!gradient.wanted()) return;
    float& element = gradient.tensor.data()[i];
    element = write == Write::accumulate && flaw != LoopFlaw::overwrites ? element + value : value;
  }

  template <class Pass>
  static double compute(Pass& pass, int step, int piece, int pieces) {
    if (flaw != LoopFlaw::keeps_activations) kept.clear();
    const int number = flaw == LoopFlaw::counts_calls ? calls++ : 7 * step + piece;
    float x[width], error[width];
    for (int i = 0; i < width; ++i) x[i] = std::sin(static_cast<float>(3 * number + i));
    {
      const auto use = pass.forward(0);
      for (int i = 0; i < width; ++i) kept.push_back(std::tanh((use.weight(0)[i] + 1) * x[i] + use.weight(1)[i]));
    }
    double loss = 0;
    float share = flaw == LoopFlaw::divides_by_its_own ? 1.0f : 1.0f / static_cast<float>(pieces);
    {
      const auto use = pass.forward(1);
      for (int i = 0; i < width; ++i) {
        const float target = 0.5f * x[i];
        error[i] = (use.weight(0)[i] + 1) * kept[static_cast<std::size_t>(i)] - target;
        loss += 0.5 * static_cast<double>(share * error[i] * error[i]);
      }
    }
    if (flaw == LoopFlaw::leaves_out_a_unit) return loss;
    if (flaw == LoopFlaw::divides_loss_alone) share = 1;
    float d[width];
    {
      const auto use = pass.backward(1);
      const auto gradient = use.gradient(0);
      const Write write = gradient.next();
      for (int i = 0; i < width; ++i) {
        put(gradient, i, share * error[i] * kept[static_cast<std::size_t>(i)], write);
        d[i] = share * error[i] * (use.weight(0)[i] + 1);
        if (flaw == LoopFlaw::stops_at_frozen && !gradient.wanted()) d[i] = 0;
      }
    }
    const auto use = pass.backward(0);
    const auto of_a = use.gradient(0), of_b = use.gradient(1);
    const Write write_a = of_a.next();
    const Write write_b = flaw == LoopFlaw::forgets_a_gradient ? Write::overwrite : of_b.next();
    for (int i = 0; i < width; ++i) {
      const float y = kept[static_cast<std::size_t>(i)];
      put(of_a, i, d[i] * (1 - y * y) * x[i], write_a);
      if (flaw != LoopFlaw::forgets_a_gradient) put(of_b, i, d[i] * (1 - y * y), write_b);
    }
    kept.erase(kept.begin(), kept.begin() + width);
    return loss;
  }
};

}  // namespace fsdp::foreign
