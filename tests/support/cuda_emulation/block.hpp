// SPDX-License-Identifier: Apache-2.0
/// @file
/// The block of threads that runs, for the emulation's own sources.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::device::cuda::emulation {

struct Site;

/// Addresses [begin, begin + bytes).
struct Range {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  bool holds(std::uintptr_t address) const { return address - begin < bytes; }
};
inline constexpr std::size_t most_shared = 227 * 1024;  ///< of a block on sm_90
/// Of the thread that runs, of its block, and of its kernel.
extern Range stack, dynamic_shared, parameters, closure;

/// Ends the launch with an error that names kernel, block and thread. Destructors of the kernel do not run.
[[noreturn]] void fail(const std::string& text);

template <class... Parts>
void require_of_thread(bool holds, const Parts&... parts) {
  if (!holds) fail(message(parts...));
}

/// What threads wait for each other in.
enum class Meeting : std::uint8_t { shuffle, ballot, warp_barrier, ldmatrix, ldmatrix_transposed, mma, block_barrier };

/// What a lane shows to its warp in one instruction.
using Shown = std::array<std::uint64_t, 5>;
using AllShown = std::array<Shown, 32>;

/// Returns what all lanes of the warp showed, when all have, each in the same kind of instruction. The last of them
/// calls `combine` first, where there is one.
AllShown& meet(Meeting kind, const Shown& mine, void (*combine)(AllShown&) = nullptr);

/// Where in time a thread stands.
struct Moment {
  std::uint32_t interval;       ///< between two barriers of a block: they are counted on and on, from 1
  std::uint32_t block, launch;  ///< the first interval of both
  std::uint16_t warp_barriers;  ///< of the thread's warp, in this block: fewer than 2^16
  std::uint16_t thread;
};
Moment now();

/// Whether a test leaves out this barrier or wait, to which the current thread has come.
bool is_left_out(const Site& site);
/// What tests set (controls.hpp).
std::uint64_t seed();
std::uint32_t most_blocks();

/// How cp.async behaves in this block: both ends of what a device may do.
bool copies_arrive_at_once();

/// A copy of the current thread, that is under way.
struct Copy {
  void* to;
  const void* from;  ///< nullptr: zeros
  std::size_t bytes;
  std::uint64_t group = 0;
};
/// It belongs to the group that the thread ends next.
void add_copy(const Copy& copy);
void end_group();
/// The oldest copy that is under way though only `groups` groups may be; false where there is none.
bool take_copy(int groups, Copy& copy);

}  // namespace fsdp::device::cuda::emulation
