// SPDX-License-Identifier: Apache-2.0
/// @file
/// What was chosen of matmuls in this process.
#pragma once

#include <tessera/fsdp/device/compute/cpu.hpp>

namespace fsdp::device::cpu {

/// Returns what choose_matmul was called with, which is fixed from now on.
MatmulChoice matmul_choice();

}  // namespace fsdp::device::cpu
