// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/mpi.hpp>

#include "calibrator.hpp"
#include "measure_comm.hpp"

namespace fsdp::bench {

template int calibrate<comm::Mpi<>>(const cli::Calibrate&);
template int measure_comm<comm::Mpi<>>(const BenchOptions&);

}  // namespace fsdp::bench
