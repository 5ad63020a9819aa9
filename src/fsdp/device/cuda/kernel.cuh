// SPDX-License-Identifier: Apache-2.0
/// @file
/// Common parts of kernels: launches, accesses and reductions, and the kernel that runs an operation on every element
/// of a matrix.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels.hpp"
#include "launch.hpp"
#include "numbers.cuh"

namespace fsdp::device::cuda {

#if defined(__CUDACC__)

/// Load and store 16 bytes of global memory. The store is inline PTX, because the compiler splits stores of a struct or
/// of its own vector type.
__device__ __forceinline__ Wide load_wide(const void* from) {
  const uint4 wide = *static_cast<const uint4*>(from);
  return {{wide.x, wide.y, wide.z, wide.w}};
}
__device__ __forceinline__ void store_wide(void* to, const Wide& wide) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(wide.words[0]),
               "r"(wide.words[1]), "r"(wide.words[2]), "r"(wide.words[3])
               : "memory");
}

/// Enqueues kernel(arguments...) with `shared` bytes of dynamic shared memory per block.
template <class... Parameters, class... Arguments>
void launch(Lane lane, const char* name, void (*kernel)(Parameters...), Grid grid, std::size_t shared,
            const Arguments&... arguments) {
  if (shared > shared_without_asking)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  kernel<<<dim3(grid.x, grid.y), grid.threads, shared, lane.stream>>>(Parameters(arguments)...);
  require_launched(name);
}

/// Returns the block's dynamic shared memory.
__device__ __forceinline__ std::byte* shared_memory() {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<std::byte*>(memory);
}

/// Returns the value of the lane whose number differs in the bits of `mask`.
template <class T>
__device__ __forceinline__ T exchange(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

/// Returns 2^x by the hardware instruction: within 2 ulp; results below 2^-126 become 0 (exp2f avoids this by scaling).
__device__ __forceinline__ float exp2_flushed(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

/// Returns x, but hides from the compiler how it was computed, so that x stays in one register instead of being
/// recomputed from parts in several.
__device__ __forceinline__ int opaque(int x) {
  asm("" : "+r"(x));
  return x;
}

/// Returns a bit mask of the lanes that pass true.
__device__ __forceinline__ std::uint32_t ballot(bool yes) { return __ballot_sync(0xffffffffu, yes); }
__device__ __forceinline__ unsigned popcount(std::uint32_t bits) { return static_cast<unsigned>(__popc(bits)); }

#endif

/// Converts between 16 bytes and their elements.
/// @{
template <class T>
__device__ __forceinline__ void unpack(const Wide& wide, float* to) {
  constexpr int width = 16 / sizeof(T);
  T elements[width];
  std::memcpy(static_cast<void*>(elements), &wide, sizeof wide);
#pragma unroll
  for (int i = 0; i < width; ++i) to[i] = widen(elements[i]);
}
template <class T>
__device__ __forceinline__ Wide pack(const float* from) {
  constexpr int width = 16 / sizeof(T);
  T elements[width];
#pragma unroll
  for (int i = 0; i < width; ++i) elements[i] = narrow<T>(from[i]);
  Wide wide;
  std::memcpy(&wide, elements, sizeof wide);
  return wide;
}
/// @}

/// Loads W elements from an address, which is aligned to 16 bytes if W > 1.
template <int W, class T>
__device__ __forceinline__ void load(const T* from, float (&to)[W]) {
  if constexpr (W == 1) {
    to[0] = widen(*from);
  } else {
    constexpr int part = 16 / sizeof(T);
#pragma unroll
    for (int i = 0; i < W; i += part) unpack<T>(load_wide(from + i), to + i);
  }
}
template <int W, class T>
__device__ __forceinline__ void store(T* to, const float (&from)[W]) {
  if constexpr (W == 1) {
    *to = narrow<T>(from[0]);
  } else {
    constexpr int part = 16 / sizeof(T);
#pragma unroll
    for (int i = 0; i < W; i += part) store_wide(to + i, pack<T>(from + i));
  }
}

/// The rows of a matrix, as a kernel argument.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;

  Rows(Tensor<T> matrix) : data(matrix.data()), stride(matrix.rank() == 2 ? matrix.row_stride() : matrix.numel()) {}
  __device__ __forceinline__ T* row(std::int64_t index) const { return data + index * stride; }
};

/// Returns the address and row stride of a matrix; a vector is one row.
template <class T>
Access access(const Tensor<T>& matrix) {
  return {.data = matrix.data(),
          .element_bytes = sizeof(T),
          .row_stride = matrix.rank() == 2 && matrix.rows() > 1 ? matrix.row_stride() : 0};
}

/// Calls body.operator()<W>(column) for the share of a row that belongs to thread `thread` of `threads`.
template <int W, class Body>
__device__ __forceinline__ void for_row(const Cut& cut, std::int64_t thread, std::int64_t threads, const Body& body) {
  for (std::int64_t index = thread; index < cut.items(); index += threads) {
    const Elements elements = cut.item(index);
    if (W > 1 && elements.count > 1)
      body.template operator()<W>(elements.first);
    else
      body.template operator()<1>(elements.first);
  }
}

/// Returns the sum over a warp, in every lane.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += exchange(value, mask);
  return value;
}

/// Returns the sum over a block, in every thread, in an order that depends only on the block size. All threads of the
/// block must call it.
template <class T>
__device__ __forceinline__ T block_sum(T value) {
  __shared__ T sums[most_threads / warp];
  value = warp_sum(value);
  __syncthreads();  // other threads may still be reading an earlier sum
  if (threadIdx.x % warp == 0) sums[threadIdx.x / warp] = value;
  __syncthreads();
  T total = 0;
  for (unsigned i = 0; i < blockDim.x / warp; ++i) total += sums[i];
  return total;
}

/// Calls body(row) for the rows of this block, one after the other.
template <class Body>
__device__ __forceinline__ void for_rows_of_block(std::int64_t rows, const Body& body) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) body(row);
}

/// Return this thread's number in the grid, and the number of threads.
__device__ __forceinline__ std::int64_t thread_of_grid() { return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ __forceinline__ std::int64_t threads_of_grid() { return std::int64_t{gridDim.x} * blockDim.x; }

/// Number of elements of the narrowest operand in 16 bytes.
template <class... T>
constexpr int widest = 16 / std::min({sizeof(T)...});

/// Calls operation.operator()<W>(row, column) for every vector and every single element.
template <int W, class Operation>
__global__ void for_elements(std::int64_t rows, Cut cut, Operation operation) {
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y)
    for_row<W>(cut, thread_of_grid(), threads_of_grid(),
               [&]<int V>(std::int64_t column) { operation.template operator()<V>(row, column); });
}

/// The plain variant processes one element at a time.
template <int W, class Operation>
void run(Lane lane, const char* name, const Operation& operation, std::int64_t rows, std::int64_t columns,
         std::span<const Access> accesses) {
  if (rows == 0 || columns == 0) return;
  const Cut cut = lane.plain ? cut_singly(columns) : cut_for_vectors(columns, W, accesses);
  const Grid grid = grid_of_elements(rows, cut.items());
  if (cut.vectors > 0)
    launch(lane, name, for_elements<W, Operation>, grid, 0, rows, cut, operation);
  else
    launch(lane, name, for_elements<1, Operation>, grid, 0, rows, cut, operation);
}

/// Launches an operation on operands of the same shape. If all operands are contiguous, they are treated as one long
/// row.
template <class Operation, class First, class... T>
void run_on(Lane lane, const char* name, const Operation& operation, const Tensor<First>& first,
            const Tensor<T>&... operands) {
  const bool flat = first.rank() != 2 || (first.contiguous() && ... && operands.contiguous());
  Access accesses[] = {access(first), access(operands)...};
  if (flat)
    for (Access& each : accesses) each.row_stride = 0;
  run<widest<First, T...>>(lane, name, operation, flat ? 1 : first.rows(), flat ? first.numel() : first.columns(),
                           accesses);
}

}  // namespace fsdp::device::cuda
