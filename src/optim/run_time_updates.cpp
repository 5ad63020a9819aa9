// SPDX-License-Identifier: Apache-2.0
// Apart from run_time.cpp: a program without the CPU links that file and not this one.
#include <fsdp/optim/run_time.hpp>

namespace fsdp::optim {

FSDP_RUN_TIME_UPDATE(template, device::Cpu::Stream, float)
FSDP_RUN_TIME_UPDATE(template, device::Cpu::Stream, bf16)
FSDP_RUN_TIME_UPDATE(template, device::Meta::Stream, float)
FSDP_RUN_TIME_UPDATE(template, device::Meta::Stream, bf16)

}  // namespace fsdp::optim
