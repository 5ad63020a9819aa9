// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/nccl.hpp>

#include "subject.hpp"

namespace fsdp::calibrate {

template int calibrate<comm::Nccl<>>(const cli::Calibrate&);

}  // namespace fsdp::calibrate
