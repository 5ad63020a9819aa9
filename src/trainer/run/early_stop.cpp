// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/early_stop.hpp>

namespace fsdp::train {

bool EarlyStop::improves(double loss, std::int64_t step) {
  if (patience_ == 0 || (best_ && best_->step == step)) return false;
  if (best_ && loss >= best_->loss) {
    ++best_->worse;
    return false;
  }
  best_ = {.loss = loss, .step = step};
  return true;
}

}  // namespace fsdp::train
