// SPDX-License-Identifier: Apache-2.0
/// @file
/// The updates of optim::RunTimeOptimizer that are compiled into the library: those of stacks on the CPU, and of their
/// dry runs. A program that includes this compiles faster; nothing else depends on it.
#pragma once

#include <tessera/fsdp/core/bf16.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>

namespace fsdp::optim {

/// One of them; `how` is `extern template` or `template`.
#define FSDP_RUN_TIME_UPDATE(how, Stream, Compute) \
  how void RunTimeOptimizer::update(Stream&, const Update<Compute>&, Tensor<const device::StepDecision>) const;

FSDP_RUN_TIME_UPDATE(extern template, device::Cpu::Stream, float)
FSDP_RUN_TIME_UPDATE(extern template, device::Cpu::Stream, bf16)
FSDP_RUN_TIME_UPDATE(extern template, device::Meta::Stream, float)
FSDP_RUN_TIME_UPDATE(extern template, device::Meta::Stream, bf16)

}  // namespace fsdp::optim
