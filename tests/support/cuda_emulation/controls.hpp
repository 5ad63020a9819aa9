// SPDX-License-Identifier: Apache-2.0
/// @file
/// Controls and observations of the emulation for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::device::cuda::emulation {

/// Enables checks of accesses (accesses.hpp) in all later launches. Off by default.
void check_accesses(bool on);

/// Seeds the order in which warps and lanes run. By default the seed is TESSERA_EMULATION_SEED, or 0.
void seed_order(std::uint64_t seed);

/// Returns the source locations, such as "norm.cu:140", of the block barriers and waits for copies that kernels have
/// reached since the last call.
std::vector<std::string> take_sites();
/// Omits the barrier or wait at this location from now on; none if it is empty.
void leave_out(const std::string& site);

/// Limits the blocks of launches along x, so that kernels with grid-stride loops make more iterations. 0 for no limit.
void limit_blocks(std::uint32_t most);

}  // namespace fsdp::device::cuda::emulation
