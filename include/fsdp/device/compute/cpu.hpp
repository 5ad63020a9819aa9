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

template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const RmsNorm<T>&);
template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const RmsNormBackward<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const RmsNormBackward<T>&, Scratch);

template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const AddBias<T>&);
template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const BiasBackward<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const BiasBackward<T>&, Scratch);

void run(Cpu::Stream&, const RotaryTable&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const Rope<T>&);

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const Attention<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const Attention<T>&, Scratch);
template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const AttentionBackward<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const AttentionBackward<T>&, Scratch);

template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const KeepHeads<T>&);
template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const CachedAttention<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const CachedAttention<T>&, Scratch);

template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const SwiGlu<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const SwiGluBackward<T>&);

/// Both throw InputError if a token is not in the vocabulary.
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const Embedding<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const EmbeddingBackward<T>&);

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const CrossEntropy<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const CrossEntropy<T>&, Scratch);
template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const CrossEntropyLoss<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const CrossEntropyLoss<T>&, Scratch);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const CrossEntropyFold<T>&);
void run(Cpu::Stream&, const CrossEntropySum&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const CrossEntropyGradient<T>&);

void run(Cpu::Stream&, const MomentumDirection&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const Normalized<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const Combination<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const DirectionStep<T>&);

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
