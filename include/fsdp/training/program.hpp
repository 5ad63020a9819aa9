// SPDX-License-Identifier: Apache-2.0
/// @file
/// The frame of every program: opens closed standard streams, and turns exceptions into one line and an exit status.
#pragma once

#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::train {

/// Calls f, which returns an exit status, and returns the status for the process to exit with (comm::ExitStatus).
/// Prints an exception as one line on stderr. First opens a closed stdin, stdout or stderr on /dev/null, so that no
/// other file gets its descriptor. A call inside another only calls f: the outer one prints. Returns 1 instead of 0,
/// after one line on stderr, if stdout could not take all output; 128 + SIGPIPE without a line if stdout is a pipe
/// whose reader is gone. Raises the soft limit on open files. Ignores SIGXFSZ: exceeding the file size limit is an
/// error of the write.
int run_program(FunctionRef<int()> f);

}  // namespace fsdp::train
