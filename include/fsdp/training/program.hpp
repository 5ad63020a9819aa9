// SPDX-License-Identifier: Apache-2.0
/// @file
/// The frame of every program: opens closed standard streams, reads the environment for the library, and turns
/// exceptions into one line and an exit status.
#pragma once

#include <cstdint>
#include <filesystem>

#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::train {

/// Chooses the instruction set and how matmuls are computed as the environment variables TESSERA_ISA,
/// TESSERA_BF16_MATMUL and DNNL_MAX_CPU_ISA say. The library itself reads none of them. Throws InputError for an
/// invalid value. Programs without run_program call it before they compute.
void take_environment();

/// Returns the folder that TMPDIR names, or /tmp.
std::filesystem::path temporary_directory();

/// Sets the OpenMP threads of the calling thread, the program's own: collectives copy with as many.
void use_threads(int threads);

/// Prints comm::cores_warning, if it has any.
void warn_of_cores(int ranks, std::int64_t threads);

/// Calls f, which returns an exit status, and returns the status for the process to exit with (comm::ExitStatus).
/// Prints an exception as one line on stderr. First opens a closed stdin, stdout or stderr on /dev/null, so that no
/// other file gets its descriptor, and calls take_environment. A call inside another only calls f: the outer one
/// prints. Returns 1 instead of 0, after one line on stderr, if stdout could not take all output; 128 + SIGPIPE without
/// a line if stdout is a pipe whose reader is gone. Raises the soft limit on open files. Ignores SIGXFSZ: exceeding the
/// file size limit is an error of the write.
int run_program(FunctionRef<int()> f);

}  // namespace fsdp::train
