// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/instances.hpp>

FSDP_MODULE_INSTANCES(template, fsdp::comm::Threads<>, fsdp::Fp32)
FSDP_MODULE_INSTANCES(template, fsdp::comm::Threads<>, fsdp::Bf16Mixed)
FSDP_MODULE_INSTANCES(template, fsdp::comm::Simulated<>, fsdp::Fp32)
FSDP_MODULE_INSTANCES(template, fsdp::comm::Simulated<>, fsdp::Bf16Mixed)
