// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/execution/step_hooks.hpp>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {

void check_unwatched_plan(const StepSize& size) {
  require(
      !size.digests && !size.verifies,
      "plan: steps are to be digested or verified (StepSize::digests, StepSize::verifies), and the dry run of this ",
      "model has no code for that; include <tessera/fsdp/verification/verification.hpp> and take "
      "Training<Model, Optimizer, WatchedSteps>, or give WatchedSteps{} as the last argument of plan::dry_run");
}

void check_watched(const StepSize& size, bool watches_steps) {
  require(watches_steps || (!size.digests && !size.verifies),
          "executor: the module is planned for digests or verification (StepSize::digests, StepSize::verifies), and "
          "nothing watches its steps; include <tessera/fsdp/verification/step_watch.hpp> and write StepWatch "
          "watch(training.module(), training.executor()) before the first step");
}

}  // namespace fsdp
