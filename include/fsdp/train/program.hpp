// SPDX-License-Identifier: Apache-2.0
/// @file
/// What every program does around its work: sound descriptors before it, errors as one line and a status after it.
#pragma once

#include <fsdp/core/function_ref.hpp>

namespace fsdp::train {

/// Calls f, which returns an exit status, and returns that of the process (comm::ExitStatus). An exception becomes one
/// line on stderr. A closed stdin, stdout or stderr is opened on /dev/null first, so that no file takes its number;
/// status 0 becomes 1, with a line, where stdout took not all that was printed.
int run_program(FunctionRef<int()> f);

}  // namespace fsdp::train
