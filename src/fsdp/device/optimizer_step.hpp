// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scalar arithmetic of an optimizer step, shared by all devices: the step's decision, and AdamW's factors.
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/fsdp/device/operations/adamw.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>

#include "both.hpp"

namespace fsdp::device {

/// Decides a step from `sums` [ranks, columns]: each rank's loss, its gradients' sum of squares, both added in rank
/// order, and, with three columns, whether it gave up the pass, which skips the step.
/// Nonfinite gradients skip the step, and stop all later steps unless rules.skips_overflow. A nonfinite loss always
/// stops.
FSDP_BOTH void decide_step(const StepRules& rules, const StepInputs& inputs, const double* sums, std::int64_t ranks,
                           std::int64_t columns, StepDecision& step) {
  double loss = 0, squares = 0;
  step.forfeited = -1;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    loss += sums[columns * rank];
    squares += sums[columns * rank + 1];
    if (columns == 3 && sums[columns * rank + 2] != 0 && step.forfeited < 0)
      step.forfeited = static_cast<std::int32_t>(rank);
  }
  step.loss = loss;
  step.norm = sqrt(squares) / inputs.loss_scale;
  if (step.forfeited >= 0) {  // what it would have computed is missing, and says nothing of the loss
    step.skipped = 1;
    return;
  }
  const bool overflow = step.norm - step.norm != 0;
  if (loss - loss != 0 || (overflow && !rules.skips_overflow)) step.stopped = 1;
  step.skipped = overflow || step.stopped != 0 ? 1 : 0;
  if (step.skipped != 0) return;
  ++step.taken;
  const double clipped = rules.clip > 0 ? fmin(1.0, rules.clip / (step.norm + 1e-6)) : 1.0;
  step.gradient_scale = static_cast<float>(clipped / inputs.loss_scale);
  step.lr = inputs.lr;
}

/// AdamW's constants for one call, as its elements use them. Bias corrections are computed in double.
struct AdamWFactors {
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float root_scale;  ///< 1 / sqrt(1 - beta2^taken)
  float eps, decay;
  float step_size;  ///< lr / (1 - beta1^taken)

  FSDP_BOTH AdamWFactors(const AdamWRules& rules, const StepDecision& step)
      : gradient_scale(step.gradient_scale),
        beta1(static_cast<float>(rules.beta1)),
        one_minus_beta1(static_cast<float>(1.0 - static_cast<double>(beta1))),
        beta2(static_cast<float>(rules.beta2)),
        one_minus_beta2(static_cast<float>(1.0 - static_cast<double>(beta2))),
        root_scale(static_cast<float>(1 / sqrt(1 - pow(rules.beta2, static_cast<double>(step.taken))))),
        eps(rules.eps),
        decay(static_cast<float>(1.0 - static_cast<double>(static_cast<float>(step.lr)) *
                                           static_cast<double>(rules.weight_decay))),
        step_size(static_cast<float>(step.lr / (1 - pow(rules.beta1, static_cast<double>(step.taken))))) {}
};

}  // namespace fsdp::device
