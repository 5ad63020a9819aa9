// SPDX-License-Identifier: Apache-2.0
/// @file
/// A warp's products of 16-bit matrices on tensor cores (mma m16n8k16, float sums), and the shared-memory tiles that
/// feed them.
///
/// Of a 16 x 8 result, lane l has the elements (l / 4, 2 (l % 4) + {0, 1}) and the two elements 8 rows below. A result,
/// rounded and packed, can be an operand of the next product, since it has the layout of a left operand's halves.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernel.cuh"

namespace fsdp::device::cuda {

#if defined(__CUDACC__)

/// d += a * b, where a is 16 x 16, b is 16 x 8, and both have elements of type T.
template <class T>
__device__ __forceinline__ void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                             std::uint32_t b1) {
  if constexpr (std::is_same_v<T, bf16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Loads four 8 x 8 matrices. Lane l passes the address of row l % 8 of matrix l / 8, and receives the elements (l / 4,
/// 2 (l % 4) + {0, 1}) of each matrix.
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
/// Does the same as load_matrices, but transposes the matrices.
__device__ __forceinline__ void load_transposed(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

/// Starts an asynchronous copy of 16 bytes, or of zeros, into shared memory; complete after `wait_for_copies`.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool exists) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(exists ? 16 : 0)
      : "memory");
}
/// Does the same as copy_async for 4 bytes.
__device__ __forceinline__ void copy_word_async(void* to, const void* from, bool exists) {
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(exists ? 4 : 0)
      : "memory");
}
/// Ends a group of copies.
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `Groups` of this thread's groups of copies are in flight.
template <int Groups>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}

#endif

/// Packs two numbers into one operand register, the first in the low half.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  return std::uint32_t{narrow<T>(low).bits} | std::uint32_t{narrow<T>(high).bits} << 16;
}

/// Row stride in elements of a tile of D columns: 16 bytes more than a row, so that the same 16 bytes of eight rows lie
/// in different banks.
template <int D>
constexpr int tile_stride = D + 8;

/// Copies successive tiles of `Rows` rows and `columns` <= D columns of one matrix with `Threads` threads, from row
/// `first` on. Fills columns from `columns` on with zeros. Does not end the group of copies.
template <int D, int Rows, int Threads, class T>
class TileCopies {
 public:
  __device__ __forceinline__ TileCopies(const T* matrix, std::int64_t stride, int first, int columns)
      : row_(opaque(column() < columns ? row() : beyond)),
        to_(opaque(row() * tile_stride<D> + column())),
        from_(matrix + (first + row()) * stride + column()),
        stride_(stride) {}

  /// Copies the next tile. Only its first `rows` rows exist; fills the rest with zeros.
  __device__ __forceinline__ void next(T* tile, int rows) {
    const T* from = from_;
    if (column() < D)
#pragma unroll
      for (int below = 0; below < Rows; below += step) {
        copy_async(tile + to_ + below * tile_stride<D>, from, row_ < rows - below);
        from += step * stride_;
      }
    from_ += Rows * stride_;
  }
  /// Skips `elements` elements of the matrix before the next tile.
  __device__ __forceinline__ void skip(std::int64_t elements) { from_ += elements; }

 private:
  static constexpr int chunk = 16 / sizeof(T);
  // The number of threads per row is a power of 2. The last threads of a row may be idle, but each thread needs only
  // one address.
  static constexpr int threads_of_row = static_cast<int>(std::bit_ceil(unsigned{D} / chunk));
  static constexpr int step = Threads / threads_of_row;
  static constexpr int beyond = 1 << 30;  ///< a row number that does not occur in any matrix
  static_assert(D % chunk == 0 && Threads % threads_of_row == 0 && Rows % step == 0);
  static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x / threads_of_row); }
  static __device__ __forceinline__ int column() { return static_cast<int>(threadIdx.x % threads_of_row * chunk); }

  int row_, to_;
  const T* from_;
  std::int64_t stride_;
};

/// d[m] += A_m * B^T, for row tiles A_m [16, D], stored consecutively, and B [8 N, D], both in shared memory.
template <int D, int M, int N, class T>
__device__ __forceinline__ void multiply_by_transposed(float (&d)[M][N][4], const T* a, const T* b) {
  const int lane = threadIdx.x % warp;
  const T* const a_row = a + lane % 16 * tile_stride<D> + lane / 16 * 8;
  const T* const b_row = b + (lane % 8 + lane / 16 * 8) * tile_stride<D> + lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    std::uint32_t left[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) load_matrices(left[m], a_row + m * 16 * tile_stride<D> + k);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      std::uint32_t right[4];
      load_matrices(right, b_row + n * 8 * tile_stride<D> + k);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply_add<T>(d[m][n], left[m], right[0], right[1]);
        multiply_add<T>(d[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

/// d[m] += P_m * B, for results P_m [16, 8 K], rounded to T, and B [8 K, D] in shared memory.
template <int D, int M, int K, class T>
__device__ __forceinline__ void multiply_rounded(float (&d)[M][D / 8][4], const float (&p)[M][K][4], const T* b) {
  const int lane = threadIdx.x % warp;
  const T* const b_row = b + lane % 16 * tile_stride<D> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < K; k += 2) {
    std::uint32_t left[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) {
      left[m][0] = pack<T>(p[m][k][0], p[m][k][1]);
      left[m][1] = pack<T>(p[m][k][2], p[m][k][3]);
      left[m][2] = pack<T>(p[m][k + 1][0], p[m][k + 1][1]);
      left[m][3] = pack<T>(p[m][k + 1][2], p[m][k + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      std::uint32_t right[4];
      load_transposed(right, b_row + k * 8 * tile_stride<D> + n * 8);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply_add<T>(d[m][n], left[m], right[0], right[1]);
        multiply_add<T>(d[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

/// Return this lane's first column in tile n of a result, and its row in half 0 or 1.
__device__ __forceinline__ int result_column(int n) { return n * 8 + static_cast<int>(threadIdx.x) % 4 * 2; }
__device__ __forceinline__ int result_row(int half) { return static_cast<int>(threadIdx.x % warp) / 4 + half * 8; }

/// Sets the scores of one row, of keys from `first_key` on, to -infinity for keys outside [lowest, highest]. Called
/// only for tiles that need it. Uses & instead of &&, to avoid a branch per score.
template <int N>
__device__ __forceinline__ void hide_unseen(float (&scores)[N][4], int half, int first_key, int lowest, int highest) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = first_key + result_column(n) + i;
      if (!((key >= lowest) & (key <= highest))) scores[n][2 * half + i] = -INFINITY;
    }
}

/// Stores row[column] and row[column + 1] with one instruction.
template <class T>
__device__ __forceinline__ void store_pair(T* row, int column, float first, float second) {
  *reinterpret_cast<std::uint32_t*>(row + column) = pack<T>(first, second);
}

}  // namespace fsdp::device::cuda
