// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/execution/instances.hpp>

#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/execution/step_hooks.hpp>
#include <tessera/fsdp/execution/unit_streams.hpp>

template class std::vector<fsdp::StepHooks<float>>;
template class std::vector<fsdp::StepHooks<fsdp::bf16>>;

namespace fsdp {

template class OffloadedInputs<device::Cpu, float>;
template class OffloadedInputs<device::Cpu, bf16>;
template class OffloadedInputs<device::Meta, float>;
template class OffloadedInputs<device::Meta, bf16>;
FSDP_EXECUTION_INSTANCES(template, nn::CpuFp32)
FSDP_EXECUTION_INSTANCES(template, nn::CpuBf16)

}  // namespace fsdp
