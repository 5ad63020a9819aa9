// SPDX-License-Identifier: Apache-2.0
/// @file
/// CUDA's keywords and a warp's instructions on the host, put before kernels that are compiled as C++: so their
/// indices, barriers and tensor core layouts are tested where there is no GPU.
///
/// A block's threads are fibers that switch where they wait for each other; blocks run one after the other. Barriers,
/// exchanges, ldmatrix, mma and cp.async mean what PTX says; addresses must be aligned. Threads run forwards and copies
/// arrive when they are waited for in even blocks, backwards and at once in odd ones: both ends of what a device may
/// do, so that many a forgotten barrier shows. Not emulated: timing, caches, races in general, and the hardware's
/// rounding inside mma. Nothing here says that a kernel is fast.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <device/cuda/kernels.hpp>
#include <device/cuda/launch.hpp>

#ifdef __global__  // by CUDA's own headers, which the doubles include
#undef __global__
#undef __device__
#undef __forceinline__
#undef __shared__
#undef __launch_bounds__
#endif
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __syncthreads() ::fsdp::device::cuda::emulation::wait_for_block()
#define threadIdx (::fsdp::device::cuda::emulation::current_thread())
#define blockIdx (::fsdp::device::cuda::emulation::block_index)
#define blockDim (::fsdp::device::cuda::emulation::block_size)
#define gridDim (::fsdp::device::cuda::emulation::grid_size)

namespace fsdp::device::cuda {
namespace emulation {

struct Index {
  std::uint32_t x = 0;
  std::uint32_t y = 0;
};
extern Index block_index, block_size, grid_size;
Index current_thread();
std::byte* dynamic_memory();

/// Returns when all threads of the block have called it.
void wait_for_block();

/// What a lane shows to its warp in one instruction.
using Shown = std::array<std::uint64_t, 4>;
/// Returns what all lanes of the warp showed, when all have.
const std::array<Shown, 32>& show(const Shown& mine);

/// Queues a kernel, which `run` then runs: at once in the emulated device, in its stream's time in the doubles of CUDA.
void submit(Lane lane, const char* kernel, std::function<void()> work);

/// Runs body once for every thread of every block.
void run(const char* kernel, const Grid& grid, std::size_t shared, const std::function<void()>& body);

template <class T>
Shown shown(T value) {
  Shown words{};
  std::memcpy(words.data(), &value, sizeof value);
  return words;
}

}  // namespace emulation

template <class... Parameters, class... Arguments>
void launch(Lane lane, const char* name, void (*kernel)(Parameters...), Grid grid, std::size_t shared,
            const Arguments&... arguments) {
  emulation::submit(lane, name, [=, values = std::tuple<Parameters...>(Parameters(arguments)...)] {
    emulation::run(name, grid, shared, [&] { std::apply(kernel, values); });
  });
}

/// Addresses must be multiples of 16 bytes.
Wide load_wide(const void* from);
void store_wide(void* to, const Wide& wide);

inline std::byte* shared_memory() { return emulation::dynamic_memory(); }

template <class T>
T exchange(T value, int mask) {
  const auto& all = emulation::show(emulation::shown(value));
  T other;
  std::memcpy(&other, all[(threadIdx.x % 32) ^ static_cast<unsigned>(mask)].data(), sizeof other);
  return other;
}

inline std::uint32_t ballot(bool yes) {
  const auto& all = emulation::show(emulation::shown(std::uint64_t{yes}));
  std::uint32_t votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) votes |= static_cast<std::uint32_t>(all[lane][0]) << lane;
  return votes;
}

inline unsigned popcount(std::uint32_t bits) { return static_cast<unsigned>(__builtin_popcount(bits)); }

inline float exp2_flushed(float x) {
  const float power = std::exp2(x);
  return power < std::numeric_limits<float>::min() ? 0.0f : power;
}
inline int opaque(int x) { return x; }

/// d += a b on a warp's fragments, as mma.m16n8k16.row.col lays them out.
template <class T>
void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const auto& all =
      emulation::show({std::uint64_t{a[0]} | std::uint64_t{a[1]} << 32, std::uint64_t{a[2]} | std::uint64_t{a[3]} << 32,
                       std::uint64_t{b0} | std::uint64_t{b1} << 32, 0});
  // Register `index` of a lane's six, and the half of it that holds element k.
  const auto element = [&](unsigned lane, unsigned index, unsigned k) {
    const auto word = static_cast<std::uint32_t>(all[lane][index / 2] >> 32 * (index % 2));
    return widen(T::from_bits(static_cast<std::uint16_t>(word >> 16 * (k % 2))));
  };
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned lane = threadIdx.x % 32, row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 16; ++k)
      d[i] += element(row % 8 * 4 + k % 8 / 2, row / 8 + k / 8 * 2, k) * element(column * 4 + k % 8 / 2, 4 + k / 8, k);
  }
}

/// ldmatrix.x4: `row` is this lane's row of eight 16-bit elements.
void load_matrices(std::uint32_t (&to)[4], const void* row);
void load_transposed(std::uint32_t (&to)[4], const void* row);

/// cp.async: 16 bytes, or zeros, that arrive when their group is waited for.
void copy_async(void* to, const void* from, bool exists);
void copy_word_async(void* to, const void* from, bool exists);  ///< 4 bytes
void end_copies();
void wait_for_groups(int under_way);
template <int Groups>
void wait_for_copies() {
  wait_for_groups(Groups);
}

}  // namespace fsdp::device::cuda
