// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/engine.hpp>

#include <utility>

namespace fsdp::train {

EnqueuedSteps::EnqueuedSteps() = default;
EnqueuedSteps::~EnqueuedSteps() = default;

StepResults& EnqueuedSteps::add() { return steps_.emplace_back(); }

StepResults EnqueuedSteps::take() {
  StepResults oldest = std::move(steps_.front());
  steps_.pop_front();
  return oldest;
}

bool EnqueuedSteps::looks_for_oldest() const { return steps_.size() > 1 && !steps_.front().done; }
void EnqueuedSteps::see_oldest_done() { steps_.front().done = std::chrono::steady_clock::now(); }

Engine::~Engine() = default;
Inference::~Inference() = default;

}  // namespace fsdp::train
