// SPDX-License-Identifier: Apache-2.0
// Makes every test program read TESSERA_ISA and similar variables, as run_program does for programs of users.
#include <tessera/fsdp/training/program.hpp>

namespace {

[[maybe_unused]] const bool taken = (fsdp::train::take_environment(), true);

}  // namespace
