// SPDX-License-Identifier: Apache-2.0
/// @file
/// CUDA's keywords and warp instructions on the host, included before kernels that are compiled as C++. It tests their
/// indices, barriers and tensor core layouts without a GPU.
///
/// The threads of a block are fibers that switch when they wait for each other; blocks run one after another. Barriers,
/// shuffles, ldmatrix, mma and cp.async have the semantics of PTX; addresses must be aligned. A seed determines the
/// order in which warps and lanes run and copies arrive: TESSERA_EMULATION_SEED sets another one. Errors report kernel,
/// block and thread: lanes of a warp in different instructions, threads that wait forever and, if accesses are checked
/// (accesses.hpp), accesses out of bounds, races, and shared memory that is read before it is written.
/// Not emulated: timing, caches, and the hardware's rounding inside mma. It cannot measure the speed of a kernel.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <tuple>

#include "src/fsdp/device/cuda/kernels.hpp"
#include "src/fsdp/device/cuda/launch.hpp"

#ifdef __global__  // defined by CUDA's own headers, which the fakes include
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
#define __syncwarp() ::fsdp::device::cuda::emulation::wait_for_warp()
#define threadIdx (::fsdp::device::cuda::emulation::current_thread())
#define blockIdx (::fsdp::device::cuda::emulation::block_index())
#define blockDim (::fsdp::device::cuda::emulation::block_size())
#define gridDim (::fsdp::device::cuda::emulation::grid_size())

namespace fsdp::device::cuda {
namespace emulation {

struct Index {
  std::uint32_t x = 0;
  std::uint32_t y = 0;
};
// Constant within a thread, and each thread is a separate call of the kernel.
[[gnu::const]] Index current_thread();
[[gnu::const]] Index block_index();
[[gnu::const]] Index block_size();
[[gnu::const]] Index grid_size();
[[gnu::const]] std::byte* dynamic_memory();

/// Source location of a barrier or a wait, by which tests can omit it.
struct Site {
  const char* file;
  unsigned line;
};
#define FSDP_SITE \
  { __builtin_FILE(), __builtin_LINE() }

/// Returns when all threads of the block have called it.
void wait_for_block(Site site = FSDP_SITE);
/// Returns when all lanes of the warp have called it.
void wait_for_warp();
/// Returns the bits of the lane whose index differs in the bits of `mask` (shuffle xor).
std::uint64_t exchanged(std::uint64_t bits, int mask);

/// Enqueues a kernel, which `run` executes: at once on the emulated device, in stream order on the fake CUDA runtime.
void submit(Lane lane, const char* kernel, std::function<void()> work);

/// Runs `body` for every thread of every block. `parameters` is memory that it may read.
void run(const char* kernel, const Grid& grid, std::size_t shared, std::span<const std::byte> parameters,
         const std::function<void()>& body);

}  // namespace emulation

template <class... Parameters, class... Arguments>
void launch(Lane lane, const char* name, void (*kernel)(Parameters...), Grid grid, std::size_t shared,
            const Arguments&... arguments) {
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> parameters;
  };
  emulation::submit(lane, name, [=, call = Call{kernel, {Parameters(arguments)...}}] {
    emulation::run(name, grid, shared, std::as_bytes(std::span(&call, 1)),
                   [&call] { std::apply(call.kernel, call.parameters); });
  });
}

/// Addresses must be multiples of 16 bytes.
Wide load_wide(const void* from);
void store_wide(void* to, const Wide& wide);

inline std::byte* shared_memory() { return emulation::dynamic_memory(); }

template <class T>
T exchange(T value, int mask) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = emulation::exchanged(bits, mask);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint32_t ballot(bool yes);
inline unsigned popcount(std::uint32_t bits) { return static_cast<unsigned>(__builtin_popcount(bits)); }

inline float exp2_flushed(float x) {
  const float power = std::exp2(x);
  return power < std::numeric_limits<float>::min() ? 0.0f : power;
}
inline int opaque(int x) { return x; }

/// d += a b on a warp's fragments, as mma.m16n8k16.row.col lays them out.
template <class T>
void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

/// ldmatrix.x4: `row` is this lane's row of eight 16-bit elements.
void load_matrices(std::uint32_t (&to)[4], const void* row);
void load_transposed(std::uint32_t (&to)[4], const void* row);

/// cp.async of 16 bytes, or of zeros unless `exists`; they arrive no later than the wait for their group.
void copy_async(void* to, const void* from, bool exists);
void copy_word_async(void* to, const void* from, bool exists);  ///< the same for 4 bytes
void end_copies(emulation::Site site = FSDP_SITE);
void wait_for_groups(int under_way, emulation::Site site);
template <int Groups>
void wait_for_copies(emulation::Site site = FSDP_SITE) {
  wait_for_groups(Groups, site);
}

}  // namespace fsdp::device::cuda
