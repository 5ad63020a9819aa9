// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/mpi.hpp>

#include "subject.hpp"

namespace fsdp::calibrate {

template int calibrate<comm::Mpi<>>(const cli::Calibrate&);

}  // namespace fsdp::calibrate
