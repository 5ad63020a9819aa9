// SPDX-License-Identifier: Apache-2.0
/// @file
/// Modules that are compiled into the library, so that other objects need not have them: of FullyShard on the CPU,
/// among threads of a process, and their dry run.
#pragma once

#include <tessera/comm/simulated.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/module/group_tasks.hpp>
#include <tessera/fsdp/module/module_memory.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>

/// All of a module that does not depend on its strategy; `how` is `extern template` or `template`.
#define FSDP_MODULE_INSTANCES(how, Comm, Precision)                                                    \
  how class fsdp::ParameterGroup<fsdp::TypesOf<fsdp::Stack<fsdp::FullyShard<>, Comm, Precision>>>;     \
  how class fsdp::ModuleMemory<fsdp::TypesOf<fsdp::Stack<fsdp::FullyShard<>, Comm, Precision>>>;       \
  how class fsdp::GroupTasks<fsdp::TypesOf<fsdp::Stack<fsdp::FullyShard<>, Comm, Precision>>>;         \
  how class fsdp::optim::StepControl<fsdp::TypesOf<fsdp::Stack<fsdp::FullyShard<>, Comm, Precision>>>; \
  how class fsdp::optim::ShardedStates<fsdp::TypesOf<fsdp::Stack<fsdp::FullyShard<>, Comm, Precision>>>;
FSDP_MODULE_INSTANCES(extern template, fsdp::comm::Threads<>, fsdp::Fp32)
FSDP_MODULE_INSTANCES(extern template, fsdp::comm::Threads<>, fsdp::Bf16Mixed)
FSDP_MODULE_INSTANCES(extern template, fsdp::comm::Simulated<>, fsdp::Fp32)
FSDP_MODULE_INSTANCES(extern template, fsdp::comm::Simulated<>, fsdp::Bf16Mixed)
