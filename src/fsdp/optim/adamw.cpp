// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/adamw.hpp>

namespace fsdp::optim {

void AdamW::validate() const {
  require_constant(beta1 >= 0 && static_cast<float>(beta1) < 1, "beta1", beta1, "at least 0 and below 1 as a float");
  require_constant(beta2 >= 0 && static_cast<float>(beta2) < 1, "beta2", beta2, "at least 0 and below 1 as a float");
  require_constant(eps >= 1e-30 && eps <= 1, "eps", eps, "above 0, at least 1e-30 and at most 1");
  require_constant(weight_decay >= 0 && weight_decay <= 1000, "weight-decay", weight_decay,
                   "at least 0 and at most 1000");
}

}  // namespace fsdp::optim
