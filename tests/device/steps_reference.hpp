// SPDX-License-Identifier: Apache-2.0
/// @file
/// SGD and Muon's momentum in float64.
#pragma once

#include <cstddef>
#include <vector>

#include "reference.hpp"

namespace fsdp::device::reference {

/// Without and with momentum, Nesterov's, and decay.
inline std::vector<SgdRules> sgd_rules() {
  return {{.momentum = 0},
          {.momentum = 0, .weight_decay = 0.1f},
          {.momentum = 0.9f},
          {.momentum = 0.9f, .nesterov = true, .weight_decay = 0.1f}};
}

/// One step, in place; `m` stays where there is no momentum.
inline void sgd_reference(const SgdRules& rules, const StepDecision& step, Values& w, Values& m, const Values& g) {
  const auto momentum = static_cast<double>(rules.momentum);
  for (std::size_t i = 0; i < w.size(); ++i) {
    double direction = static_cast<double>(step.gradient_scale) * g[i] + static_cast<double>(rules.weight_decay) * w[i];
    if (momentum != 0) {
      m[i] = momentum * m[i] + direction;
      direction = rules.nesterov ? direction + momentum * m[i] : m[i];
    }
    w[i] -= step.lr * direction;
  }
}

/// Muon's direction with a momentum of 0.95; `m` is stepped.
inline Values direction_reference(bool nesterov, const StepDecision& step, Values& m, const Values& g) {
  constexpr double momentum = 0.95;
  Values direction;
  for (std::size_t i = 0; i < m.size(); ++i) {
    const double gradient = static_cast<double>(step.gradient_scale) * g[i];
    m[i] = momentum * m[i] + gradient;
    direction.push_back(nesterov ? gradient + momentum * m[i] : m[i]);
  }
  return direction;
}

}  // namespace fsdp::device::reference
