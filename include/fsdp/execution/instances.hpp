// SPDX-License-Identifier: Apache-2.0
/// @file
/// Explicit instantiations that are compiled into the library: a Llama's unit computations on the CPU, for all stacks,
/// and offloaded inputs.
#pragma once

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/execution/unit_computation.hpp>
#include <tessera/fsdp/execution/unit_streams.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/nn/instances.hpp>

namespace fsdp {

/// The units of a Llama on one rank.
template <class L>
using LlamaUnits =
    UnitTypes<nn::RotaryEmbedding<L>, nn::Recomputed<nn::TransformerBlock<L>, L>, nn::LossHead<L>, TokenBatch>;

/// `how` is `extern template` or `template`.
#define FSDP_EXECUTION_INSTANCES(how, ...)     \
  how class Uploaded<TokenBatch, __VA_ARGS__>; \
  how class UnitComputation<LlamaUnits<__VA_ARGS__>, __VA_ARGS__>;

#define FSDP_OFFLOADED_INPUTS(how)                \
  how class OffloadedInputs<device::Cpu, float>;  \
  how class OffloadedInputs<device::Cpu, bf16>;   \
  how class OffloadedInputs<device::Meta, float>; \
  how class OffloadedInputs<device::Meta, bf16>;

FSDP_OFFLOADED_INPUTS(extern template)
FSDP_EXECUTION_INSTANCES(extern template, nn::CpuFp32)
FSDP_EXECUTION_INSTANCES(extern template, nn::CpuBf16)

}  // namespace fsdp
