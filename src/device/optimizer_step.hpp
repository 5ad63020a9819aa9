// SPDX-License-Identifier: Apache-2.0
/// @file
/// The few numbers of an optimizer step, the same on every device: what is decided, and what AdamW makes of it.
#pragma once

#include <cmath>
#include <cstdint>

#include <fsdp/device/operations.hpp>

#include "both.hpp"

namespace fsdp::device {

/// `sums` [ranks, 2]: every rank's loss, and its sum of squares of the gradients; added up in rank order. Gradients
/// that are not finite skip the step, and end all steps unless the run goes on; so does such a loss, in any run.
FSDP_BOTH void decide_step(const StepRules& rules, const StepInputs& inputs, const double* sums, std::int64_t ranks,
                           StepDecision& step) {
  double loss = 0, squares = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    loss += sums[2 * rank];
    squares += sums[2 * rank + 1];
  }
  step.loss = loss;
  step.norm = sqrt(squares) / inputs.loss_scale;
  const bool overflow = step.norm - step.norm != 0;
  if (loss - loss != 0 || (overflow && !rules.skips_overflow)) step.stopped = 1;
  step.skipped = overflow || step.stopped != 0 ? 1 : 0;
  if (step.skipped != 0) return;
  const auto taken = static_cast<double>(++step.taken);
  const double clipped = rules.clip > 0 ? fmin(1.0, rules.clip / (step.norm + 1e-6)) : 1.0;
  step.gradient_scale = static_cast<float>(clipped / inputs.loss_scale);
  step.lr = static_cast<float>(inputs.lr);
  step.step_size = static_cast<float>(inputs.lr / (1 - pow(rules.beta1, taken)));
  step.root_scale = static_cast<float>(1 / sqrt(1 - pow(rules.beta2, taken)));
}

/// Constants of AdamW as its elements use them.
struct AdamWFactors {
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, root_scale, eps, decay, step_size;

  FSDP_BOTH AdamWFactors(const AdamWRules& rules, const StepDecision& step)
      : gradient_scale(step.gradient_scale),
        beta1(rules.beta1),
        one_minus_beta1(static_cast<float>(1.0 - static_cast<double>(rules.beta1))),
        beta2(rules.beta2),
        one_minus_beta2(static_cast<float>(1.0 - static_cast<double>(rules.beta2))),
        root_scale(step.root_scale),
        eps(rules.eps),
        decay(static_cast<float>(1.0 - static_cast<double>(step.lr) * static_cast<double>(rules.weight_decay))),
        step_size(step.step_size) {}
};

}  // namespace fsdp::device
