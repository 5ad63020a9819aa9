// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CPU's operations that compute: matmuls by oneDNN, and our kernels for the rest. Programs link tessera::tessera.
///
/// tessera/fsdp/device/operations.hpp includes this. Reductions over tokens are in float.
#pragma once

#include <cstdint>
#include <string>

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
#include <tessera/fsdp/device/cpu.hpp>

namespace fsdp::device {

// ---- Operations: src/fsdp/device/compute/cpu/. T is float or bf16. ----

/// (A, C) is (float, float), (bf16, bf16) or (bf16, float).
template <ComputedBy<Cpu> A, ComputedBy<Cpu> C>
std::int64_t scratch(const Cpu::Planner&, const Matmul<A, C>&);
template <ComputedBy<Cpu> A, ComputedBy<Cpu> C>
void run(Cpu::Stream&, const Matmul<A, C>&, Scratch);

FSDP_RUNS(Cpu, RmsNorm)
FSDP_RUNS_IN_SCRATCH(Cpu, RmsNormBackward)

FSDP_RUNS(Cpu, AddBias)
FSDP_RUNS_IN_SCRATCH(Cpu, BiasBackward)

void run(Cpu::Stream&, const RotaryTable&);
FSDP_RUNS(Cpu, Rope)

FSDP_RUNS_IN_SCRATCH(Cpu, Attention)
FSDP_RUNS_IN_SCRATCH(Cpu, AttentionBackward)

FSDP_RUNS(Cpu, KeepHeads)
FSDP_RUNS_IN_SCRATCH(Cpu, CachedAttention)

FSDP_RUNS(Cpu, SwiGlu)
FSDP_RUNS(Cpu, SwiGluBackward)

/// Both throw InputError if a token is not in the vocabulary.
FSDP_RUNS(Cpu, Embedding)
FSDP_RUNS(Cpu, EmbeddingBackward)

FSDP_RUNS_IN_SCRATCH(Cpu, CrossEntropy)
FSDP_RUNS_IN_SCRATCH(Cpu, CrossEntropyLoss)
FSDP_RUNS(Cpu, CrossEntropyFold)
void run(Cpu::Stream&, const CrossEntropySum&);
FSDP_RUNS(Cpu, CrossEntropyGradient)

void run(Cpu::Stream&, const MomentumDirection&);
FSDP_RUNS(Cpu, Normalized)
FSDP_RUNS(Cpu, Combination)
FSDP_RUNS(Cpu, DirectionStep)

/// How bf16 matrices are multiplied.
enum class Bf16Matmul : std::uint8_t {
  by_instruction_set,  ///< the processor's faster way
  native,              ///< by oneDNN's bf16 matmul
  by_float             ///< widened to float
};

/// How this process computes matmuls, as the program chooses.
struct MatmulChoice {
  Bf16Matmul bf16 = Bf16Matmul::by_instruction_set;
  bool limits_library =
      true;  ///< whether oneDNN keeps to a lesser instruction_set() too; false if it was limited before
};

/// Chooses how matmuls are computed. Call it before anything is computed: throws LogicError if a matmul was computed by
/// another choice. The first matmul in bf16 throws InputError if `native` is chosen and oneDNN has no bf16 matmul for
/// the instruction set.
void choose_matmul(const MatmulChoice& choice);

/// Returns the instruction set and, if not the set's default, how bf16 is multiplied. Metrics and checkpoints record
/// it, because the bits of results depend on it.
std::string arithmetic();

/// Returns oneDNN's version and what steers how it splits matmuls: the instruction set that it may use and the sizes of
/// the processor's caches in bytes, by level. The last bits of results depend on it, too.
std::string matmul_library();

FSDP_ENQUEUE_MATMULS(extern template, Cpu::Stream)

}  // namespace fsdp::device
