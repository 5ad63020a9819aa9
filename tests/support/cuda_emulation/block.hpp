// SPDX-License-Identifier: Apache-2.0
/// @file
/// The running thread block; internal to the emulation.
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
inline constexpr std::size_t most_shared = 227 * 1024;  ///< bytes per block on sm_90
/// Memory of the running thread (stack), of its block (dynamic_shared) and of its kernel (parameters, closure).
extern Range stack, dynamic_shared, parameters, closure;

/// Ends the launch with an error that reports kernel, block and thread. Destructors of the kernel do not run.
[[noreturn]] void fail(const std::string& text);

template <class... Parts>
void require_of_thread(bool holds, const Parts&... parts) {
  if (!holds) fail(message(parts...));
}

/// Instructions in which threads wait for each other.
enum class Meeting : std::uint8_t { shuffle, ballot, warp_barrier, ldmatrix, ldmatrix_transposed, mma, block_barrier };

/// The values that a lane passes to its warp in one instruction.
using Shown = std::array<std::uint64_t, 5>;
using AllShown = std::array<Shown, 32>;

/// Waits until all lanes of the warp have reached the same kind of instruction, and returns the values of all lanes.
/// The last lane calls `combine` first, unless it is null.
AllShown& meet(Meeting kind, const Shown& mine, void (*combine)(AllShown&) = nullptr);

/// The logical time of a thread.
struct Moment {
  std::uint32_t interval;       ///< number of the interval between two block barriers, counted from 1 and never reset
  std::uint32_t block, launch;  ///< the first interval of the block and of the launch
  std::uint16_t warp_barriers;  ///< barriers of the thread's warp so far in this block, fewer than 2^16
  std::uint16_t thread;
};
Moment now();

/// Whether a test omits this barrier or wait, which the current thread has reached.
bool is_left_out(const Site& site);
/// Values set by tests (controls.hpp).
std::uint64_t seed();
std::uint32_t most_blocks();

/// Whether cp.async copies arrive at once in this block, or as late as possible: the two extremes that a device may
/// show.
bool copies_arrive_at_once();

/// A copy of the current thread that is in flight.
struct Copy {
  void* to;
  const void* from;  ///< nullptr to write zeros
  std::size_t bytes;
  std::uint64_t group = 0;
};
/// Adds a copy to the group that the thread commits next.
void add_copy(const Copy& copy);
void end_group();
/// Gets the oldest copy in flight, if more than `groups` groups are in flight. Returns false if there is none.
bool take_copy(int groups, Copy& copy);

}  // namespace fsdp::device::cuda::emulation
