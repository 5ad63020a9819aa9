// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/sgd.hpp>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::optim {

void Sgd::validate() const {
  require_constant(momentum >= 0 && static_cast<float>(momentum) < 1, "momentum", momentum,
                   "at least 0 and below 1 as a float");
  require<InputError>(!nesterov || momentum > 0, "--nesterov looks ahead along the momentum, and --momentum is 0");
  require_constant(weight_decay >= 0 && weight_decay <= 1000, "weight-decay", weight_decay,
                   "at least 0 and at most 1000");
}

}  // namespace fsdp::optim
