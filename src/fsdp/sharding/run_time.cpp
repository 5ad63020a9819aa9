// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/run_time.hpp>

namespace fsdp {

FSDP_RUN_TIME_STRATEGY(, RunTimeSharded);
FSDP_RUN_TIME_STRATEGY(, RunTimeGrouped);
FSDP_RUN_TIME_STRATEGY(, RunTimeAny);
template StrategyCalls calls_of(const RunTimeAny&);
template StrategyCalls calls_of(const RunTimeHybridFull&);
template StrategyCalls calls_of(const Offload<RunTimeAny>&);
template StrategyCalls calls_of(const Offload<RunTimeHybridFull>&);

}  // namespace fsdp
