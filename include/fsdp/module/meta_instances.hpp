// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sharded modules of dry runs on Cpu that are compiled into the library: of stacks whose optimizer state is neither
/// sharded across groups nor in host memory, and that have whole sequences and no pieces.
///
/// A model that includes this links them; any other MetaStack is compiled where it is used. A Llama's dry runs:
/// tessera/fsdp/plan/meta_twin.hpp.
#pragma once

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/module/meta_stack.hpp>
#include <tessera/fsdp/module/parameter_group.hpp>
#include <tessera/fsdp/module/pass.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/module/stack_mesh.hpp>
#include <tessera/fsdp/precision/policies.hpp>

namespace fsdp {

/// `how`: `extern template` or `template`. src/fsdp/optim/meta_cpu.cpp compiles them.
#define FSDP_META_MODULES(how, Precision)                                   \
  how class StackMesh<detail::PlainMetaStack<device::Cpu, Precision>>;      \
  how class ParameterGroup<detail::PlainMetaStack<device::Cpu, Precision>>; \
  how class ShardedModule<detail::PlainMetaStack<device::Cpu, Precision>>;  \
  how class Pass<detail::PlainMetaStack<device::Cpu, Precision>>;

FSDP_META_MODULES(extern template, Fp32)
FSDP_META_MODULES(extern template, Bf16Mixed)

}  // namespace fsdp
