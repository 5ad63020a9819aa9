// SPDX-License-Identifier: Apache-2.0
/// @file
/// The instruction set of this machine.
#include "isa.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <span>
#include <string>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/device/cpu.hpp>

namespace fsdp::device::cpu {
namespace {

#if defined(__aarch64__)
constexpr std::array<std::string_view, 1> isa_names = {"neon"};
#else
constexpr std::array<std::string_view, 4> isa_names = {"baseline", "avx2", "avx512", "avx512_bf16"};
#endif

Isa best_supported_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  // Checks the features that each set's kernels are compiled for. The builtins include the operating system's support.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (avx512) return __builtin_cpu_supports("avx512bf16") ? Isa::avx512_bf16 : Isa::avx512;
  if (avx2) return Isa::avx2;  // every processor with AVX2 has F16C
#endif
  return Isa::baseline;
}

std::atomic<Isa>& current() {
  static std::atomic<Isa> isa = best_supported_isa();
  return isa;
}

/// Returns the number of a set in isa_names; their count if there is no such set.
std::size_t number_of(std::string_view name) {
  return static_cast<std::size_t>(std::ranges::find(isa_names, name) - isa_names.begin());
}

}  // namespace

std::string_view name_of(Isa isa) { return isa_names[static_cast<std::size_t>(isa)]; }

Isa detected_isa() { return current(); }

bool is_intel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

bool is_lowered() { return detected_isa() < best_supported_isa(); }

}  // namespace fsdp::device::cpu

namespace fsdp::device {

std::string_view instruction_set() { return cpu::name_of(cpu::detected_isa()); }

void choose_instruction_set(std::string_view name, std::string_view source) {
  const std::size_t found = cpu::number_of(name), count = cpu::isa_names.size();
  std::string known;  // "a, b and c"
  for (std::size_t i = 0; i < count; ++i)
    known += (i == 0 ? "" : i + 1 < count ? ", " : " and ") + std::string(cpu::isa_names[i]);
  require<InputError>(found < count, source, " is '", shortened(name), "'; ", known, " exist");
  const auto isa = static_cast<cpu::Isa>(found);
  const cpu::Isa best = cpu::best_supported_isa();
  require<InputError>(isa <= best, source, " is ", name, ", which this processor lacks; it has ", cpu::name_of(best));
  cpu::current() = isa;
}

std::string_view least_instruction_set(std::span<const std::string> sets) {
  std::size_t least = cpu::isa_names.size() - 1;
  for (const std::string& set : sets) {
    const std::size_t found = cpu::number_of(set);
    require<InputError>(found < cpu::isa_names.size(), "ranks run on unlike processors: one computes by '", set,
                        "', this one by '", instruction_set(),
                        "'; start all of them on processors of one architecture");
    least = std::min(least, found);
  }
  return cpu::isa_names[least];
}

void limit_instruction_set(std::string_view name) {
  const std::string sets[] = {std::string(name), std::string(instruction_set())};
  cpu::current() = static_cast<cpu::Isa>(cpu::number_of(least_instruction_set(sets)));
}

}  // namespace fsdp::device
