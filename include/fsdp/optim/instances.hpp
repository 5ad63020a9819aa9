// SPDX-License-Identifier: Apache-2.0
/// @file
/// Modules that are compiled into the library, so that other objects need not have them: among threads of a process, on
/// the CPU, and their dry runs.
#pragma once

#include <tessera/comm/simulated.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/module/group_tasks.hpp>
#include <tessera/fsdp/module/module_memory.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/precision/policies.hpp>

namespace fsdp {

/// The types of strategies on one axis of ranks, such as FullyShard<> and Zero2.
template <class Comm, class Precision>
using OneAxis =
    ModuleTypes<Comm, Precision, buffer::Replicate, typename Comm::Device, 1, /*by_value=*/false, WholeSequences>;

}  // namespace fsdp

/// All of a module that does not depend on its strategy; `how` is `extern template` or `template`.
#define FSDP_MODULE_INSTANCES(how, Comm, Precision)                                     \
  how class fsdp::ParameterGroup<fsdp::OneAxis<fsdp::comm::Comm, fsdp::Precision>>;     \
  how class fsdp::ModuleMemory<fsdp::OneAxis<fsdp::comm::Comm, fsdp::Precision>>;       \
  how class fsdp::GroupTasks<fsdp::OneAxis<fsdp::comm::Comm, fsdp::Precision>>;         \
  how class fsdp::optim::StepControl<fsdp::OneAxis<fsdp::comm::Comm, fsdp::Precision>>; \
  how class fsdp::optim::ShardedStates<fsdp::OneAxis<fsdp::comm::Comm, fsdp::Precision>>;
FSDP_MODULE_INSTANCES(extern template, Threads<>, Fp32)
FSDP_MODULE_INSTANCES(extern template, Threads<>, Bf16Mixed)
FSDP_MODULE_INSTANCES(extern template, Simulated<>, Fp32)
FSDP_MODULE_INSTANCES(extern template, Simulated<>, Bf16Mixed)
