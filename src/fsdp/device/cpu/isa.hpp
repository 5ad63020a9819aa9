// SPDX-License-Identifier: Apache-2.0
/// @file
/// Run-time dispatch by instruction set.
///
/// Every file in a folder kernels/ (src/fsdp/device/cpu, src/fsdp/device/compute/cpu, src/comm) is compiled once per
/// set, with matching compiler flags and the macro FSDP_ISA, the name of the set (baseline, avx2, avx512_bf16). Such a
/// file keeps its functions in an anonymous namespace, calls no inline function of a library (the linker would keep one
/// copy for all sets), and exports one constant table of function pointers:
///
///     FSDP_EXPORT_KERNELS(RowKernels, {{row_functions<float>, row_functions<bf16>}})
///
/// Callers are compiled once and use the table of the current set: `kernels<RowKernels>().of<T>().norm(...)`.
#pragma once

#include <cstdint>
#include <string_view>

namespace fsdp::device::cpu {

/// Instruction sets, each of which includes the sets before it. avx512 does not include the bf16 instructions: with it,
/// Tessera's kernels are the ones for avx2, while oneDNN's use the wider registers.
enum class Isa : std::uint8_t { baseline, avx2, avx512, avx512_bf16 };

/// Returns the name of a set. On aarch64 the baseline is called neon, so that ranks and resumed runs can distinguish it
/// from x86-64's.
std::string_view name_of(Isa isa);

/// Returns the current set: this machine's best, or a lesser one chosen by choose_instruction_set or
/// limit_instruction_set (tessera/fsdp/device/cpu.hpp).
Isa detected_isa();

/// Returns whether the current set is less than the processor's best.
bool is_lowered();

bool is_intel();

/// Returns the table that set `isa` exports; FSDP_EXPORT_KERNELS defines it in a file compiled for that set.
template <class Table, Isa isa>
const Table& table();

/// Returns the table of kernels for the current set.
template <class Table>
const Table& kernels() {
#if defined(__x86_64__)  // other architectures compile only the baseline
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

/// In namespace fsdp::device::cpu: defines `table` of a type with the following initialiser.
#define FSDP_EXPORT_KERNELS(Table, ...)            \
  template <>                                      \
  const Table& table<Table, Isa::FSDP_ISA>() {     \
    static constexpr Table exported = __VA_ARGS__; \
    return exported;                               \
  }
