// SPDX-License-Identifier: Apache-2.0
/// @file
/// This process's choice of how matmuls are computed.
#pragma once

#include <tessera/fsdp/device/compute/cpu.hpp>

namespace fsdp::device::cpu {

/// Returns the choice made by choose_matmul, which cannot be changed after this call.
MatmulChoice matmul_choice();

}  // namespace fsdp::device::cpu
