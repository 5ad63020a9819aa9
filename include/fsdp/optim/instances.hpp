// SPDX-License-Identifier: Apache-2.0
/// @file
/// Explicit instantiations of modules that are compiled into the library, so that other objects need not contain them.
/// They cover ranks that are threads of one process, on the CPU, and dry runs for the CPU of stacks whose optimizer
/// state is neither sharded across groups nor in host memory.
#pragma once

#include <tessera/comm/simulated.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/module/group_tasks.hpp>
#include <tessera/fsdp/module/meta_stack.hpp>
#include <tessera/fsdp/module/module_memory.hpp>
#include <tessera/fsdp/module/pass.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/module/stack_mesh.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/precision/policies.hpp>

namespace fsdp {

/// The types of strategies on one axis of ranks, such as FullyShard<> and Zero2.
template <class Comm, class Precision>
using OneAxis =
    ModuleTypes<Comm, Precision, buffer::Replicate, typename Comm::Device, 1, /*by_value=*/false, WholeSequences>;

/// The types of dry runs.
template <class Precision>
using MetaTypes = TypesOf<detail::PlainMetaStack<device::Cpu, Precision>>;

}  // namespace fsdp

/// All parts of a module that do not depend on its strategy; `how` is `extern template` or `template`.
#define FSDP_MODULE_INSTANCES(how, ...)            \
  how class fsdp::StackMesh<__VA_ARGS__>;          \
  how class fsdp::ParameterGroup<__VA_ARGS__>;     \
  how class fsdp::ModuleMemory<__VA_ARGS__>;       \
  how class fsdp::GroupTasks<__VA_ARGS__>;         \
  how class fsdp::optim::StepControl<__VA_ARGS__>; \
  how class fsdp::optim::ShardedStates<__VA_ARGS__>;
/// The additional parts of a dry run's module.
#define FSDP_META_MODULES(how, Precision)                                                    \
  FSDP_MODULE_INSTANCES(how, fsdp::MetaTypes<Precision>)                                     \
  how class fsdp::ShardedModule<fsdp::detail::PlainMetaStack<fsdp::device::Cpu, Precision>>; \
  how class fsdp::Pass<fsdp::detail::PlainMetaStack<fsdp::device::Cpu, Precision>>;

FSDP_MODULE_INSTANCES(extern template, fsdp::OneAxis<fsdp::comm::Threads<>, fsdp::Fp32>)
FSDP_MODULE_INSTANCES(extern template, fsdp::OneAxis<fsdp::comm::Threads<>, fsdp::Bf16Mixed>)
FSDP_META_MODULES(extern template, fsdp::Fp32)
FSDP_META_MODULES(extern template, fsdp::Bf16Mixed)
