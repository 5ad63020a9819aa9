// SPDX-License-Identifier: Apache-2.0
// Separate from run_time_optimizer.cpp, so that a program without the CPU device can link that file without this one.
#include <tessera/fsdp/training/run_time_optimizer.hpp>

namespace fsdp::optim {

FSDP_RUN_TIME_UPDATE(template, device::Cpu::Stream, float)
FSDP_RUN_TIME_UPDATE(template, device::Cpu::Stream, bf16)
FSDP_RUN_TIME_UPDATE(template, device::Meta::Stream, float)
FSDP_RUN_TIME_UPDATE(template, device::Meta::Stream, bf16)

}  // namespace fsdp::optim
