// SPDX-License-Identifier: Apache-2.0
/// @file
/// The instruction set of this machine.
#include "isa.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <fsdp/core/error.hpp>

namespace fsdp::device::cpu {
namespace {

Isa best_of_machine() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  // The flags that the kernels of each set are compiled with; the compiler's answers include the operating system's.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bf16"))
    return Isa::avx512;
  if (avx2) return Isa::avx2;  // every processor with AVX2 has F16C
#endif
  return Isa::baseline;
}

Isa choose() {
  const Isa best = best_of_machine();
  const char* const asked = std::getenv("TESSERA_ISA");
  if (asked == nullptr) return best;
  const std::string_view name(asked);
  if (name == "baseline") return Isa::baseline;
  if (name == "avx2") return std::min(best, Isa::avx2);
  require<InputError>(name == "avx512", "TESSERA_ISA is '", name, "'; baseline, avx2 and avx512 exist");
  return best;
}

}  // namespace

Isa detected_isa() {
  static const Isa isa = choose();
  return isa;
}

}  // namespace fsdp::device::cpu
