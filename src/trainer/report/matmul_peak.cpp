// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/matmul_peak.hpp>

namespace fsdp::report {

template MatmulPeak measure_matmul_peak<device::Cpu, float>(const comm::Ranks&, int);
template MatmulPeak measure_matmul_peak<device::Cpu, bf16>(const comm::Ranks&, int);

}  // namespace fsdp::report
