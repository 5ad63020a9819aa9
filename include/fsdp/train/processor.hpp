// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks on unlike processors compute alike.
#pragma once

#include <comm/ranks.hpp>

namespace fsdp::train {

/// All ranks take the least of their instruction sets, before anything is computed; rank 0 says so where they differ.
/// Throws InputError where ranks were told otherwise how to multiply bf16.
void agree_on_instruction_set(const comm::Ranks& ranks);

}  // namespace fsdp::train
