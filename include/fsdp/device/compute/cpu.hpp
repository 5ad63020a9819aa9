// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CPU's compute operations: matmuls by oneDNN, and Tessera's own kernels for the rest. Programs link
/// tessera::tessera.
///
/// tessera/fsdp/device/operations.hpp includes this. Reductions over tokens are computed in float.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/fsdp/device/compute/attention.hpp>
#include <tessera/fsdp/device/compute/matmul.hpp>
#include <tessera/fsdp/device/compute/muon.hpp>
#include <tessera/fsdp/device/compute/norm.hpp>
#include <tessera/fsdp/device/compute/rope.hpp>
#include <tessera/fsdp/device/compute/vocabulary.hpp>
#include <tessera/fsdp/device/cpu.hpp>

namespace fsdp::device {

// ---- Operations: src/fsdp/device/compute/cpu/. T is float or bf16. ----

/// Matmul's types (A, C) are (float, float), (bf16, bf16) or (bf16, float). Embedding and EmbeddingBackward throw
/// InputError if a token is not in the vocabulary.
FSDP_RUNS_COMPUTE(Cpu)
FSDP_RUNS(Cpu, Rope)
FSDP_RUNS_IN_SCRATCH(Cpu, CachedAttention)

/// How bf16 matrices are multiplied.
enum class Bf16Matmul : std::uint8_t {
  by_instruction_set,  ///< the faster of both for the processor's instruction set
  native,              ///< multiplied by oneDNN's bf16 matmul
  by_float             ///< widened to float, then multiplied
};

/// The program's choice of how this process computes matmuls.
struct MatmulChoice {
  Bf16Matmul bf16 = Bf16Matmul::by_instruction_set;
  /// Whether oneDNN is also limited to a lowered instruction_set(); false if it was limited before.
  bool limits_library = true;
  friend bool operator==(const MatmulChoice&, const MatmulChoice&) = default;
};

/// Chooses how matmuls are computed. Call it before any computation: throws LogicError if a matmul was already computed
/// with another choice. The first matmul in bf16 throws InputError if `native` is chosen and oneDNN has no bf16 matmul
/// for the instruction set.
void choose_matmul(const MatmulChoice& choice);

/// Returns the instruction set and, if it is not the default of the set, how bf16 is multiplied. Metrics and
/// checkpoints record this text, because the exact bits of results depend on it.
std::string arithmetic();

/// Returns oneDNN's version and the properties that determine how it splits matmuls: the instruction set that it may
/// use, and the sizes of the processor's caches in bytes, by level. The last bits of results depend on these, too.
std::string matmul_library();

FSDP_ENQUEUE_MATMULS(extern template, Cpu::Stream)

}  // namespace fsdp::device
