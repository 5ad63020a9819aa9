// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/execution/offloaded_inputs.hpp>

namespace fsdp {

template class OffloadedInputs<device::Cpu, float>;
template class OffloadedInputs<device::Cpu, bf16>;
template class OffloadedInputs<device::Meta, float>;
template class OffloadedInputs<device::Meta, bf16>;

}  // namespace fsdp
