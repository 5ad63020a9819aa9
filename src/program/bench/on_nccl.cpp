// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/nccl.hpp>

#include "calibrator.hpp"

namespace fsdp::bench {

template int calibrate<comm::Nccl<>>(const cli::Calibrate&);

}  // namespace fsdp::bench
