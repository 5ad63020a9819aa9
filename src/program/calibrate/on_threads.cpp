// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/self.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/cpu.hpp>

#include "subject.hpp"

namespace fsdp::calibrate {

template int calibrate<comm::Self<>>(const cli::Calibrate&);
template int calibrate<comm::Threads<>>(const cli::Calibrate&);

}  // namespace fsdp::calibrate
