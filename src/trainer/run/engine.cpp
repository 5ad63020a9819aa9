// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/engine.hpp>

#include <utility>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::train {

PendingResults::PendingResults() = default;
PendingResults::~PendingResults() = default;

StepResults& PendingResults::add() { return steps_.emplace_back(); }

StepResults PendingResults::take() {
  require(!steps_.empty(),
          "engine: results were requested, and no step is enqueued whose results are missing; call step before");
  StepResults oldest = std::move(steps_.front());
  steps_.pop_front();
  return oldest;
}

bool PendingResults::looks_for_oldest() const { return steps_.size() > 1 && !steps_.front().done; }
void PendingResults::see_oldest_done() { steps_.front().done = std::chrono::steady_clock::now(); }

Engine::~Engine() = default;
Inference::~Inference() = default;

}  // namespace fsdp::train
