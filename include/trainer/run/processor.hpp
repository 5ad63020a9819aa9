// SPDX-License-Identifier: Apache-2.0
/// @file
/// One instruction set for all ranks, so that ranks on different processors use the same kernels.
#pragma once

#include <tessera/comm/ranks.hpp>

namespace fsdp::train {

/// Makes all ranks use the smallest of their instruction sets; rank 0 warns if they differ. Collective; call it before
/// the first computation. Throws InputError unless the environment variables that choose the bf16 matmul are the same
/// on all ranks.
void agree_on_instruction_set(const comm::Ranks& ranks);

}  // namespace fsdp::train
