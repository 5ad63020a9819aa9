// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tests set of the emulation, and see of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::device::cuda::emulation {

/// From here on, in every launch: see accesses.hpp. Off at first.
void check_accesses(bool on);

/// Fixes the order in which warps and lanes run; else TESSERA_EMULATION_SEED does, or 0.
void seed_order(std::uint64_t seed);

/// Barriers of a block and what waits for copies, by where they stand: "norm.cu:140". Those that kernels came to since
/// the last call.
std::vector<std::string> take_sites();
/// Passes over this one from here on; none where empty.
void leave_out(const std::string& site);

/// Launches have at most so many blocks along x: kernels that loop over what is left have more to do. 0: no limit.
void limit_blocks(std::uint32_t most);

}  // namespace fsdp::device::cuda::emulation
