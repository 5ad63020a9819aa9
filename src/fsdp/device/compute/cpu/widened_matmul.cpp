// SPDX-License-Identifier: Apache-2.0
#include "widened_matmul.hpp"

#include <omp.h>
#include <unistd.h>

#include <algorithm>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "../../cpu/threads.hpp"
#include "kernels/tables.hpp"
#include "matmul_choice.hpp"

namespace fsdp::device::cpu {
namespace {

// Block sizes such that blocks fit into a second-level cache of 1 MiB, and are reused often enough to hide the cost of
// widening.
constexpr std::int64_t most_m = 512, most_n = 512, most_k = 256, least_n = 64, step = 16;

/// Returns whether the current instruction set (isa.hpp) and DNNL_MAX_CPU_ISA allow oneDNN to use a set.
bool library_has(Isa isa, dnnl::cpu_isa library) {
  limit_library();
  const auto needed = static_cast<unsigned>(library);  // each set's bits are a subset of the bits of the sets above it
  return detected_isa() >= isa && (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & needed) == needed;
}

/// Returns the length of parts that are at most `most` long, and as equal as multiples of `step` allow.
std::int64_t balanced(std::int64_t count, std::int64_t most) {
  return std::min(count, round_up(ceil_divide(count, ceil_divide(count, most)), step));
}

std::int64_t blocks_of(const WidenedMatmul& w) { return ceil_divide(w.key.m, w.m) * ceil_divide(w.key.n, w.n); }

/// Chooses blocks of C as large as the cache allows, and small enough to divide evenly among the threads.
void choose_blocks(WidenedMatmul& w) {
  w.m = balanced(w.key.m, most_m);
  w.n = balanced(w.key.n, most_n);
  w.k = balanced(w.key.k, most_k);
  const auto uneven = [&] { return blocks_of(w) % w.threads != 0 && blocks_of(w) < 8 * w.threads; };
  while (uneven() && w.n > least_n) w.n = balanced(w.key.n, w.n - step);
  while (uneven() && w.m > least_n) w.m = balanced(w.key.m, w.m - step);
}

/// Returns the length of the last part if `is_last`, else that of the other parts.
std::int64_t extent(std::int64_t count, std::int64_t length, bool is_last) {
  return is_last ? count - (ceil_divide(count, length) - 1) * length : std::min(length, count);
}

/// Returns the row stride of a block in floats: not a power of two, which would use few cache sets.
std::int64_t leading(std::int64_t columns) { return round_up(columns, 16) + 16; }

MatmulKey product_key(const WidenedMatmul& w, std::size_t which) {
  const MatmulKey& key = w.key;
  return {.m = extent(key.m, w.m, (which & 8) != 0),
          .n = extent(key.n, w.n, (which & 4) != 0),
          .k = extent(key.k, w.k, (which & 2) != 0),
          .lda = leading(key.a_transposed ? w.m : w.k),
          .ldb = leading(key.b_transposed ? w.k : w.n),
          .ldc = leading(w.n),
          .a_transposed = key.a_transposed,
          .b_transposed = key.b_transposed,
          .accumulate = (which & 1) != 0,
          .single_thread = true};
}

/// Widens rows of a bf16 matrix to float. Rows of a block are short, and the hardware prefetcher starts again in each
/// row, so the following rows are prefetched here.
void widen(const bf16* from, std::int64_t from_stride, float* to, std::int64_t to_stride, std::int64_t rows,
           std::int64_t columns) {
  const auto& kernel = kernels<ElementwiseKernels>().of<bf16>();
  constexpr std::int64_t ahead = 4, line = 64 / sizeof(bf16);
  for (std::int64_t row = 0; row < rows; ++row) {
    if (row + ahead < rows)
      for (std::int64_t i = 0; i < columns; i += line) __builtin_prefetch(from + (row + ahead) * from_stride + i);
    kernel.to_float(from + row * from_stride, to + row * to_stride, columns);
  }
}

/// Writes a block's sums to C, or adds them to C, rounded once.
template <class C>
void write(const WidenedMatmul& w, C* c, float* sums, std::int64_t rows, std::int64_t columns) {
  const auto& kernel = kernels<ElementwiseKernels>().of<C>();
  for (std::int64_t row = 0; row < rows; ++row, c += w.key.ldc, sums += leading(w.n)) {
    if (w.key.accumulate) kernel.add_to_float(c, sums, columns);
    kernel.from_float(sums, c, columns);
  }
}

void run_block(const WidenedMatmul& w, std::int64_t i, std::int64_t j, const bf16* a, const bf16* b, void* c,
               std::byte* scratch) {
  const MatmulKey& key = w.key;
  auto* const wide_a = reinterpret_cast<float*>(scratch + w.a);
  auto* const wide_b = reinterpret_cast<float*>(scratch + w.b);
  const std::int64_t rows = std::min(w.m, key.m - i), columns = std::min(w.n, key.n - j);
  auto* const sums = reinterpret_cast<float*>(scratch + w.c);
  for (std::int64_t q = 0; q < key.k; q += w.k) {
    const std::int64_t depth = std::min(w.k, key.k - q);
    if (key.a_transposed)
      widen(a + q * key.lda + i, key.lda, wide_a, leading(w.m), depth, rows);
    else
      widen(a + i * key.lda + q, key.lda, wide_a, leading(w.k), rows, depth);
    if (key.b_transposed)
      widen(b + j * key.ldb + q, key.ldb, wide_b, leading(w.k), columns, depth);
    else
      widen(b + q * key.ldb + j, key.ldb, wide_b, leading(w.n), depth, columns);
    const bool last_m = i + w.m >= key.m, last_n = j + w.n >= key.n, last_k = q + w.k >= key.k;
    const std::size_t which = (last_m ? 8u : 0u) + (last_n ? 4u : 0u) + (last_k ? 2u : 0u) + (q > 0 ? 1u : 0u);
    run(*w.products[which], wide_a, wide_b, sums, scratch + w.product);
  }
  if (key.c == DType::bf16)
    write<bf16>(w, static_cast<bf16*>(c) + i * key.ldc + j, sums, rows, columns);
  else
    write<float>(w, static_cast<float*>(c) + i * key.ldc + j, sums, rows, columns);
}

bool choose_float() {
  switch (matmul_choice().bf16) {
    case Bf16Matmul::by_instruction_set:
      return float_is_faster({.isa = detected_isa(),
                              .library_bf16 = library_has(Isa::avx512_bf16, dnnl::cpu_isa::avx512_core_bf16),
                              .library_amx = library_has(Isa::avx512_bf16, dnnl::cpu_isa::avx512_core_amx),
                              .intel = is_intel()});
    case Bf16Matmul::by_float: return true;
    case Bf16Matmul::native: break;
  }
  require<InputError>(library_has(Isa::avx512, dnnl::cpu_isa::avx512_core),
                      "TESSERA_BF16_MATMUL is native, and oneDNN has ", "no bf16 matmul for ", name_of(detected_isa()),
                      ", or for what DNNL_MAX_CPU_ISA leaves (it needs ", "AVX-512); leave it out, or say float");
  return false;
}

bool bf16_multiplies_in_float() {
  static const bool by_float = choose_float();
  return by_float;
}

}  // namespace

bool multiplies_in_float(const MatmulKey& key) { return key.a == DType::bf16 && bf16_multiplies_in_float(); }

WidenedMatmul plan_widened(Cpu::Planner::Cache& cache, const MatmulKey& key) {
  WidenedMatmul w{.key = key, .threads = key.single_thread ? 1 : cache.threads};
  choose_blocks(w);
  std::int64_t product = 0;
  for (std::size_t which = 0; which < w.products.size(); ++which)
    product = std::max(product, cache.matmul_scratch(product_key(w, which)));
  ScratchLayout layout;
  constexpr std::int64_t real = sizeof(float);
  w.a = layout.place(key.a_transposed ? w.k * leading(w.m) : w.m * leading(w.k), real);
  w.b = layout.place(key.b_transposed ? w.n * leading(w.k) : w.k * leading(w.n), real);
  w.c = layout.place(w.m * leading(w.n), real);
  w.product = layout.place(product, 1);
  w.bytes = layout.bytes();
  return w;
}

WidenedMatmul make_widened(Cpu::Planner::Cache& cache, const MatmulKey& key) {
  WidenedMatmul w = plan_widened(cache, key);
  for (std::size_t which = 0; which < w.products.size(); ++which)
    w.products[which] = &cache.matmul(product_key(w, which));
  return w;
}

void run(const WidenedMatmul& w, const void* a, const void* b, void* c, std::byte* scratch) {
  const std::int64_t across = ceil_divide(w.key.n, w.n), blocks = blocks_of(w);
  const auto share = [&](std::int64_t part, std::int64_t parts) {
    for (std::int64_t block = part * blocks / parts; block < (part + 1) * blocks / parts; ++block)
      run_block(w, block / across * w.m, block % across * w.n, static_cast<const bf16*>(a), static_cast<const bf16*>(b),
                c, scratch + part * w.bytes);
  };
  if (w.threads == 1) return share(0, 1);
#pragma omp parallel num_threads(w.threads)
  for (int part = omp_get_thread_num(); part < w.threads; part += omp_get_num_threads()) share(part, w.threads);
}

}  // namespace fsdp::device::cpu

namespace fsdp::device {
namespace {

/// Returns the instruction set that oneDNN may use; as a number if not every version of oneDNN knows it by name.
std::string library_set() {
  const dnnl::cpu_isa set = dnnl::get_effective_cpu_isa();
  switch (set) {
    case dnnl::cpu_isa::sse41: return "sse41";
    case dnnl::cpu_isa::avx: return "avx";
    case dnnl::cpu_isa::avx2: return "avx2";
    case dnnl::cpu_isa::avx512_core: return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni: return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16: return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx: return "avx512_core_amx";
    default: return message("set ", static_cast<unsigned>(set));
  }
}

}  // namespace

std::string matmul_library() {
  cpu::limit_library();
  const dnnl::version_t& version = *dnnl_version();
  return message("oneDNN ", version.major, ".", version.minor, ".", version.patch, " (", version.hash, "), ",
                 library_set(), ", caches ", ::sysconf(_SC_LEVEL1_DCACHE_SIZE), " ", ::sysconf(_SC_LEVEL2_CACHE_SIZE),
                 " ", ::sysconf(_SC_LEVEL3_CACHE_SIZE));
}

std::string arithmetic() {
  const bool by_float = cpu::bf16_multiplies_in_float(), usually = cpu::detected_isa() < cpu::Isa::avx512_bf16;
  return std::string(instruction_set()) + (by_float == usually ? ""
                                           : by_float          ? ", bf16 by way of float"
                                                               : ", bf16 by oneDNN");
}

}  // namespace fsdp::device
