// SPDX-License-Identifier: Apache-2.0
/// @file
/// A matmul of bf16 operands by way of float, for processors that multiply float faster, or have no bf16 at all.
///
/// Blocks of both operands are widened to float in the cache, multiplied by oneDNN, and summed in float; each element
/// of the result is rounded once. A block of C is one thread's, all of its K one after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "isa.hpp"
#include "onednn.hpp"

namespace fsdp::device::cpu {

/// A processor, as far as it matters for how bf16 is multiplied.
struct Bf16Processor {
  Isa isa = Isa::baseline;
  bool library_bf16 = false;  ///< oneDNN may use the instruction of AVX-512 BF16
  bool library_amx = false;   ///< and AMX
  bool intel = false;
};

/// oneDNN multiplies bf16 with the instruction of AVX-512 BF16; with AVX-512 alone it emulates it, at a fraction of
/// float's rate, and below it does not at all. Intel's processors that have the instruction run it at half of float's
/// rate; they are made for AMX, which a virtual machine may hide.
constexpr bool float_is_faster(const Bf16Processor& processor) {
  if (processor.isa < Isa::avx512_bf16 || !processor.library_bf16) return true;
  return processor.intel && !processor.library_amx;
}

/// Whether a matmul goes by way of float: a matter of its types, the instruction set (isa.hpp), DNNL_MAX_CPU_ISA and
/// TESSERA_BF16_MATMUL=native|float. Throws InputError where native is asked for and not there.
bool goes_by_float(const MatmulKey& key);

struct WidenedMatmul {
  MatmulKey key;
  int threads = 1;                      ///< that share the blocks
  std::int64_t m = 0, n = 0, k = 0;     ///< of a block; the last ones may be smaller
  std::int64_t a = 0, b = 0, c = 0;     ///< places in a thread's scratch: float blocks
  std::int64_t product = 0, bytes = 0;  ///< the products' own scratch; of a thread altogether
  /// By is_last of m, n, k, and whether it is behind the first k: 8, 4, 2, 1.
  std::array<const Matmul*, 16> products = {};

  std::int64_t scratch_bytes() const { return bytes * threads; }
};

/// Without its products: what the dry run asks.
WidenedMatmul planned_by_float(Cpu::Planner::Cache& cache, const MatmulKey& key);
/// Ready to run; the products are the cache's.
WidenedMatmul made_by_float(Cpu::Planner::Cache& cache, const MatmulKey& key);

void run(const WidenedMatmul& matmul, const void* a, const void* b, void* c, std::byte* scratch);

}  // namespace fsdp::device::cpu
