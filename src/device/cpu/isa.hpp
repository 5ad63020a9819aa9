// SPDX-License-Identifier: Apache-2.0
/// @file
/// Choosing an instruction set at run time.
///
/// Every file in a folder kernels/ (src/device/cpu, src/comm) is compiled once per set, with the macro FSDP_ISA naming
/// it (baseline, avx2, avx512_bf16) and the compiler flags to match. Such a file keeps its functions in an anonymous
/// namespace, calls no inline function of a library (the linker would keep one copy for all sets), and exports one
/// constant table of function pointers:
///
///     constexpr NormKernels exported = {.forward = forward, .backward = backward};   // in the anonymous namespace
///     FSDP_EXPORT_KERNELS(NormKernels)                                               // at global scope
///
/// Callers, compiled once, take the table of the machine's set: `kernels<NormKernels>().forward(...)`.
#pragma once

#include <cstdint>
#include <string_view>

namespace fsdp::device::cpu {

/// Each has what is before it. avx512 is without the bf16 instruction: our kernels are those of avx2 there, and
/// oneDNN's use its registers.
enum class Isa : std::uint8_t { baseline, avx2, avx512, avx512_bf16 };

/// As TESSERA_ISA is written. On aarch64 the baseline is called neon, so that ranks and resumed runs tell it from
/// x86-64's.
std::string_view name_of(Isa isa);

/// The best set of this machine, or the lesser one that the environment variable TESSERA_ISA names, which oneDNN then
/// keeps to as well, unless DNNL_MAX_CPU_ISA is set; or what keep_to_instruction_set said (device/cpu.hpp). Throws
/// InputError for a name that is none, or one that the processor lacks.
Isa detected_isa();

/// Whether it is less than the processor's.
bool is_lowered();

/// Whether Intel made the processor.
bool is_intel();

/// What the environment variable TESSERA_BF16_MATMUL asks for.
enum class Bf16Matmul : std::uint8_t { by_instruction_set, native, by_float };

/// Throws InputError for a value that is neither native nor float; detected_isa does, too, so that it is seen at once.
Bf16Matmul asked_bf16_matmul();

/// The table that set `isa` exports; defined by FSDP_EXPORT_KERNELS in a file compiled for that set.
template <class Table, Isa isa>
const Table& table();

/// The table of kernels for this machine.
template <class Table>
const Table& kernels() {
#if defined(__x86_64__)  // elsewhere only the baseline is compiled
  switch (detected_isa()) {
    case Isa::avx512_bf16: return table<Table, Isa::avx512_bf16>();
    case Isa::avx512:
    case Isa::avx2: return table<Table, Isa::avx2>();
    case Isa::baseline: break;
  }
#endif
  return table<Table, Isa::baseline>();
}

}  // namespace fsdp::device::cpu

#define FSDP_EXPORT_KERNELS(Table) FSDP_EXPORT_TABLE(::fsdp::device::cpu::Table, exported)
/// The same for a table that stands in another namespace.
#define FSDP_EXPORT_TABLE(Table, exported)                                             \
  template <>                                                                          \
  const Table& fsdp::device::cpu::table<Table, ::fsdp::device::cpu::Isa::FSDP_ISA>() { \
    return exported;                                                                   \
  }
