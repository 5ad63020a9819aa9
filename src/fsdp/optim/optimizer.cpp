// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/optimizer.hpp>

#include <tessera/fsdp/core/finite.hpp>

namespace fsdp::optim {

void require_constant(bool holds, std::string_view name, double value, std::string_view range) {
  require<InputError>(holds && is_finite(value), "--", name, " ", value, " must be ", range);
}

}  // namespace fsdp::optim
