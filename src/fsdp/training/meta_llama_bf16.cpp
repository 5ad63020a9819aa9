// SPDX-License-Identifier: Apache-2.0
// Dry runs of a Llama, with and without gathers in bf16, which have most of their code in common. Dry runs of stacks on
// Cuda do not require CUDA.
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/nn/cuda_instances.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/sequence/ulysses.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/verification/verification.hpp>

namespace fsdp::plan::detail {

FSDP_META_LLAMA(template, device::Cpu, Bf16Mixed)
FSDP_META_LLAMA(template, device::Cuda, Bf16Mixed)
FSDP_META_LLAMA(template, device::Cpu, Bf16Wire<Bf16Mixed>)
FSDP_META_LLAMA(template, device::Cuda, Bf16Wire<Bf16Mixed>)

}  // namespace fsdp::plan::detail
