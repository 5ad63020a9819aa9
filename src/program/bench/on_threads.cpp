// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/self.hpp>
#include <tessera/comm/threads.hpp>

#include "calibrator.hpp"
#include "measure_comm.hpp"

namespace fsdp::bench {

template int calibrate<comm::Self<>>(const cli::Calibrate&);
template int measure_comm<comm::Self<>>(const BenchOptions&);
template int calibrate<comm::Threads<>>(const cli::Calibrate&);
template int measure_comm<comm::Threads<>>(const BenchOptions&);

}  // namespace fsdp::bench
