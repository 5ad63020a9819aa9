// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cuda's compute operations. Programs link tessera::cuda.
///
/// cuBLASLt computes matmuls, and cuDNN computes attention in builds with cuDNN; all other kernels are Tessera's own,
/// in src/fsdp/device/cuda/. `documents` are lists in host memory. Tokens and targets must be in the vocabulary. That
/// is checked when batches enter (Model::validate), since a kernel cannot throw; kernels write NaN for invalid ones.
/// tessera/fsdp/device/operations.hpp includes this.
#pragma once

#include <tessera/fsdp/device/compute/attention.hpp>
#include <tessera/fsdp/device/compute/matmul.hpp>
#include <tessera/fsdp/device/compute/muon.hpp>
#include <tessera/fsdp/device/compute/norm.hpp>
#include <tessera/fsdp/device/compute/rope.hpp>
#include <tessera/fsdp/device/compute/vocabulary.hpp>
#include <tessera/fsdp/device/cuda.hpp>

namespace fsdp::device {

// T is float, bf16 or f16. Scratch sizes are in src/fsdp/device/compute/cuda_scratch.cpp, which needs no CUDA, so that
// dry runs work on any machine.

/// Matmul's types (A, C) are (T, T) or (T, float).
///
/// Attention uses cuDNN in builds with cuDNN, for bf16 and f16, sequences without packed documents, head sizes that are
/// multiples of 8 up to 128, and rows that start at multiples of 16 bytes. Otherwise it uses Tessera's kernels. These
/// run on tensor cores for such rows and head sizes that are multiples of 8 up to 256, in tiles of 32, 64, 80, 96, 128,
/// 192 or 256 columns (the next larger). For the rest, with head sizes up to 512, one warp processes each row, which is
/// tens of times slower.
///
/// In Tessera's kernels of AttentionBackward, the thread block that owns a block of keys sums dk and dv, and the thread
/// block that owns a block of queries sums dq. Scores are therefore computed twice (three times for head sizes above
/// 128), and results do not depend on timing. cuDNN's deterministic algorithm instead stores the gradients of scores,
/// so it processes only a few heads at a time, and is not used if one key-value head would exceed 1.25 GiB.
///
/// CachedAttention uses one thread block per head and sequence. It supports head sizes up to 512.
///
/// In EmbeddingBackward, each thread block owns every 1024th row of the table and reads all tokens. This costs about
/// 4 KiB per token, mostly served from the cache, in addition to the traffic of dy and dtable.
FSDP_RUNS_COMPUTE(Cuda)
/// Returns whether Tessera's kernels compute an attention of whole sequences in builds with cuDNN, too: for plans.
bool in_own_kernels(const Cuda::Planner&, const AttentionShape&, DType, bool backward);
FSDP_RUNS_IN_SCRATCH(Cuda, Rope)
FSDP_RUNS(Cuda, CachedAttention)

}  // namespace fsdp::device
