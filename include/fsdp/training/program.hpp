// SPDX-License-Identifier: Apache-2.0
/// @file
/// The entry point of every program: opens closed standard streams, reads environment variables for the library, and
/// converts exceptions to one line on stderr and an exit status.
#pragma once

#include <cstdint>
#include <filesystem>

#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::train {

/// Sets the instruction set and the matmul implementation from the environment variables TESSERA_ISA,
/// TESSERA_BF16_MATMUL and DNNL_MAX_CPU_ISA. The library itself does not read environment variables. Throws InputError
/// for an invalid value. Programs without run_program call it before they compute.
void take_environment();

/// Returns the folder in TMPDIR, or /tmp if it is unset.
std::filesystem::path temporary_directory();

/// Sets the number of OpenMP threads of the calling thread, which belongs to the program. Collectives use the same
/// number for copies.
void use_threads(int threads);

/// Prints the warning of comm::cores_warning, if there is one.
void warn_of_cores(int ranks, std::int64_t threads);

/// Calls f, which returns an exit status, and returns the exit status of the process (comm::ExitStatus). Prints an
/// exception as one line on stderr. First opens a closed stdin, stdout or stderr on /dev/null, so that no other file
/// gets its descriptor, and calls take_environment. A nested call only calls f, and the outer call prints. If stdout
/// cannot be written, prints one line on stderr and returns 1 instead of 0; if stdout is a pipe without a reader,
/// returns 128 + SIGPIPE and prints nothing. Raises the soft limit on open files. Ignores SIGXFSZ: exceeding the file
/// size limit makes the write fail.
int run_program(FunctionRef<int()> f);

}  // namespace fsdp::train
