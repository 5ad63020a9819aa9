// SPDX-License-Identifier: Apache-2.0
// Every test program computes as TESSERA_ISA and its like say, which programs of the library's users read by
// run_program.
#include <tessera/fsdp/training/program.hpp>

namespace {

[[maybe_unused]] const bool taken = (fsdp::train::take_environment(), true);

}  // namespace
