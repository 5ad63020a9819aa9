// SPDX-License-Identifier: Apache-2.0
/// @file
/// Explicit instantiations of a Llama's unit computations, compiled into the library: on the CPU, for all stacks.
#pragma once

#include <tessera/fsdp/execution/unit_computation.hpp>
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

FSDP_EXECUTION_INSTANCES(extern template, nn::CpuFp32)
FSDP_EXECUTION_INSTANCES(extern template, nn::CpuBf16)

}  // namespace fsdp
