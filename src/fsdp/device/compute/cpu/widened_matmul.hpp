// SPDX-License-Identifier: Apache-2.0
/// @file
/// A matmul of bf16 operands that multiplies in float, for processors on which float is faster or bf16 is not
/// available.
///
/// Blocks of both operands are widened to float in the cache, multiplied by oneDNN, and summed in float; each element
/// of the result is rounded once. One thread computes a block of C, over all of K in order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "../../cpu/isa.hpp"
#include "onednn.hpp"

namespace fsdp::device::cpu {

/// The properties of a processor that determine how bf16 is multiplied.
struct Bf16Processor {
  Isa isa = Isa::baseline;
  bool library_bf16 = false;  ///< oneDNN may use the instructions of AVX-512 BF16
  bool library_amx = false;   ///< oneDNN may use AMX
  bool intel = false;
};

/// Returns whether float is faster than oneDNN's bf16 matmul. oneDNN uses the dot-product instruction of AVX-512 BF16.
/// With AVX-512 alone, it emulates bf16 at a fraction of float's rate; below AVX-512, it does not have a bf16 matmul.
/// Intel's processors run the instruction at half of float's rate and rely on AMX, which a virtual machine may hide.
constexpr bool float_is_faster(const Bf16Processor& processor) {
  if (processor.isa < Isa::avx512_bf16 || !processor.library_bf16) return true;
  return processor.intel && !processor.library_amx;
}

/// Returns whether a matmul multiplies in float. It depends on the types, the instruction set (isa.hpp), the
/// instructions that oneDNN may use, and choose_matmul. Throws InputError if Bf16Matmul::native is chosen but not
/// available.
bool multiplies_in_float(const MatmulKey& key);

struct WidenedMatmul {
  MatmulKey key;
  int threads = 1;                      ///< number of threads that share the blocks
  std::int64_t m = 0, n = 0, k = 0;     ///< size of a block; the last blocks may be smaller
  std::int64_t a = 0, b = 0, c = 0;     ///< offsets of the float blocks in a thread's scratch
  std::int64_t product = 0, bytes = 0;  ///< offset of the scratch of the products; total bytes of a thread
  /// Products by index. Bits 8, 4 and 2 are set if m, n and k are the sizes of the last block; bit 1 is set if the
  /// product adds to an earlier block of k.
  std::array<const Matmul*, 16> products = {};

  std::int64_t scratch_bytes() const { return bytes * threads; }
};

/// Returns the matmul without its products, for dry runs.
WidenedMatmul plan_widened(Cpu::Planner::Cache& cache, const MatmulKey& key);
/// Returns the matmul, ready to run. `cache` owns the products.
WidenedMatmul make_widened(Cpu::Planner::Cache& cache, const MatmulKey& key);

void run(const WidenedMatmul& matmul, const void* a, const void* b, void* c, std::byte* scratch);

}  // namespace fsdp::device::cpu
