// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/instances.hpp>

#include <type_traits>

#include <tessera/fsdp/module/stack.hpp>

static_assert(std::is_same_v<fsdp::OneAxis<fsdp::comm::Threads<>, fsdp::Fp32>,
                             fsdp::TypesOf<fsdp::Stack<fsdp::FullyShard<>, fsdp::comm::Threads<>, fsdp::Fp32>>>);

FSDP_MODULE_INSTANCES(template, Threads<>, Fp32)
FSDP_MODULE_INSTANCES(template, Threads<>, Bf16Mixed)
FSDP_MODULE_INSTANCES(template, Simulated<>, Fp32)
FSDP_MODULE_INSTANCES(template, Simulated<>, Bf16Mixed)
