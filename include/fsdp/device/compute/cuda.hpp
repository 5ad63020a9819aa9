// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cuda's operations that compute. Programs link tessera::cuda.
///
/// cuBLASLt computes matmuls, and cuDNN attention in builds that have it; all other kernels are ours, in
/// src/fsdp/device/cuda/. `documents` are host lists. Tokens and targets must be in the vocabulary. That is checked
/// when batches enter (Model::validate), since a kernel cannot throw; a kernel writes NaN for invalid ones.
/// tessera/fsdp/device/operations.hpp includes this.
#pragma once

#include <cstdint>

#include <tessera/fsdp/device/compute/attention.hpp>
#include <tessera/fsdp/device/compute/bias.hpp>
#include <tessera/fsdp/device/compute/cached_attention.hpp>
#include <tessera/fsdp/device/compute/cross_entropy.hpp>
#include <tessera/fsdp/device/compute/embedding.hpp>
#include <tessera/fsdp/device/compute/matmul.hpp>
#include <tessera/fsdp/device/compute/muon.hpp>
#include <tessera/fsdp/device/compute/norm.hpp>
#include <tessera/fsdp/device/compute/rope.hpp>
#include <tessera/fsdp/device/compute/swiglu.hpp>
#include <tessera/fsdp/device/cuda.hpp>

namespace fsdp::device {

// T is float, bf16 or f16. Scratch sizes are in src/fsdp/device/compute/cuda_scratch.cpp, which needs no CUDA, so that
// dry runs work on any machine.

/// (A, C) is (T, T) or (T, float).
template <ComputedBy<Cuda> A, ComputedBy<Cuda> C>
std::int64_t scratch(const Cuda::Planner&, const Matmul<A, C>&);
template <ComputedBy<Cuda> A, ComputedBy<Cuda> C>
void run(Cuda::Stream&, const Matmul<A, C>&, Scratch);

FSDP_RUNS(Cuda, RmsNorm)
FSDP_RUNS_IN_SCRATCH(Cuda, RmsNormBackward)

FSDP_RUNS(Cuda, AddBias)
FSDP_RUNS_IN_SCRATCH(Cuda, BiasBackward)

void run(Cuda::Stream&, const RotaryTable&);
FSDP_RUNS_IN_SCRATCH(Cuda, Rope)

/// Uses cuDNN, in builds that have it, for bf16 and f16, whole sequences, head sizes that are multiples of 8 up to 128,
/// and rows that start at multiples of 16 bytes. Otherwise uses our kernels: on tensor cores for such rows with head
/// sizes that are multiples of 8 up to 256, in tiles of the next wider of 32, 64, 80, 96, 128, 192 and 256 columns;
/// with one warp per row for the rest, with head sizes up to 512, which is tens of times slower.
FSDP_RUNS_IN_SCRATCH(Cuda, Attention)
/// In our kernels, the owner of a block of keys sums dk and dv, and the owner of a block of queries sums dq. That
/// computes scores twice (three times for head sizes above 128), and nothing depends on timing. cuDNN's deterministic
/// algorithm stores the gradients of scores instead, so it processes a few heads at a time, and is not used if one
/// key-value head would take 1.25 GiB.
FSDP_RUNS_IN_SCRATCH(Cuda, AttentionBackward)

FSDP_RUNS(Cuda, KeepHeads)
/// Uses one thread block per head and sequence. Supports head sizes up to 512.
FSDP_RUNS(Cuda, CachedAttention)

FSDP_RUNS(Cuda, SwiGlu)
FSDP_RUNS(Cuda, SwiGluBackward)

FSDP_RUNS(Cuda, Embedding)
/// Each thread block owns every 1024th row of the table and reads all tokens: about 4 KiB per token, mostly from the
/// cache, in addition to the traffic of dy and dtable.
FSDP_RUNS(Cuda, EmbeddingBackward)

FSDP_RUNS_IN_SCRATCH(Cuda, CrossEntropy)
FSDP_RUNS_IN_SCRATCH(Cuda, CrossEntropyLoss)
FSDP_RUNS(Cuda, CrossEntropyFold)
void run(Cuda::Stream&, const CrossEntropySum&);
FSDP_RUNS(Cuda, CrossEntropyGradient)

void run(Cuda::Stream&, const MomentumDirection&);
FSDP_RUNS(Cuda, Normalized)
FSDP_RUNS(Cuda, Combination)
FSDP_RUNS(Cuda, DirectionStep)

}  // namespace fsdp::device
