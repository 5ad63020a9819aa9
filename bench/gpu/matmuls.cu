// SPDX-License-Identifier: Apache-2.0
/// cuBLASLt's bf16 matmuls in two settings that the library does not use yet, one JSON object per line.
///
/// next to copies: CTAS blocks that copy in a loop on a stream of the highest priority stand for NCCL's kernels, and
///   cuBLASLt is told of fewer multiprocessors (SM_COUNT_TARGET) or not: what collectives cost the matmuls next to them,
///   on one GPU.
/// residual: y = x + a b with x as C and y as D, in place of a copy of x and an accumulating matmul.
#include <cublasLt.h>
#include <cuda_bf16.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

template <class Status>
void check(Status status, const char* what) {
  if (static_cast<int>(status) == 0) return;
  std::fprintf(stderr, "bench_matmuls: %s failed with status %d\n", what, static_cast<int>(status));
  std::exit(2);
}

/// Values in [-0.5, 0.5) that differ: the power of a matmul depends on them.
__global__ void fill_kernel(__nv_bfloat16* x, std::size_t count, std::uint32_t seed) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x) {
    std::uint32_t state = (static_cast<std::uint32_t>(i) + seed) * 1664525u + 1013904223u;
    state ^= state >> 15;
    x[i] = __float2bfloat16(static_cast<float>(state & 0xffff) * 0x1p-16f - 0.5f);
  }
}

constexpr std::size_t copied = std::size_t{1} << 24, copied_at_once = std::size_t{1} << 13;  ///< elements of 16 bytes

/// Copies until `stop`, which lies in the host's memory, is set; then adds the bytes that it read and wrote to `moved`.
__global__ void copy_kernel(const uint4* from, uint4* to, const volatile int* stop, unsigned long long* moved) {
  __shared__ int stopped;
  unsigned long long bytes = 0;
  for (std::size_t begin = blockIdx.x * copied_at_once;; begin = (begin + gridDim.x * copied_at_once) % copied) {
    if (threadIdx.x == 0) stopped = *stop;
    __syncthreads();
    if (stopped != 0) break;
    for (std::size_t i = begin + threadIdx.x; i < begin + copied_at_once; i += blockDim.x) to[i] = from[i];
    bytes += 2 * copied_at_once * sizeof(uint4);
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(moved, bytes);
}

template <class T>
T* allocate(std::size_t count) {
  void* data = nullptr;
  check(cudaMalloc(&data, count * sizeof(T)), "cudaMalloc");
  return static_cast<T*>(data);
}

__nv_bfloat16* filled(std::size_t count, std::uint32_t seed) {
  auto* const x = allocate<__nv_bfloat16>(count);
  fill_kernel<<<1024, 256>>>(x, count, seed);
  check(cudaDeviceSynchronize(), "fill");
  return x;
}

/// d = a b + beta c of row-major a [m, k], b [n, k] transposed, c and d [m, n].
class Product {
 public:
  Product(int m, int n, int k, int multiprocessors = 0) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check(cublasLtCreate(&handle_), "cublasLtCreate");
    check(cublasLtMatmulDescCreate(&matmul_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    if (multiprocessors > 0) set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, multiprocessors);
    check(cublasLtMatrixLayoutCreate(&a_, CUDA_R_16BF, k, m, k), "cublasLtMatrixLayoutCreate");
    check(cublasLtMatrixLayoutCreate(&b_, CUDA_R_16BF, k, n, k), "cublasLtMatrixLayoutCreate");
    check(cublasLtMatrixLayoutCreate(&c_, CUDA_R_16BF, n, m, n), "cublasLtMatrixLayoutCreate");
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                               sizeof workspace_bytes),
          "cublasLtMatmulPreferenceSetAttribute");
    int found = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle_, matmul_, b_, a_, c_, c_, preference, 1, &chosen_, &found),
          "cublasLtMatmulAlgoGetHeuristic");
    workspace_ = allocate<char>(workspace_bytes);
  }
  void enqueue(cudaStream_t stream, const __nv_bfloat16* a, const __nv_bfloat16* b, float beta, const __nv_bfloat16* c,
               __nv_bfloat16* d) const {
    const float one = 1;
    check(cublasLtMatmul(handle_, matmul_, &one, b, b_, a, a_, &beta, c, c_, d, c_, &chosen_.algo, workspace_,
                         workspace_bytes, stream),
          "cublasLtMatmul");
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(matmul_, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t matmul_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulHeuristicResult_t chosen_ = {};
  char* workspace_ = nullptr;
};

/// Milliseconds of one of `count` calls on the stream.
template <class Call>
float milliseconds(cudaStream_t stream, int count, const Call& call) {
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  for (int i = 0; i < 3; ++i) call();
  check(cudaEventRecord(begin, stream), "cudaEventRecord");
  for (int i = 0; i < count; ++i) call();
  check(cudaEventRecord(end, stream), "cudaEventRecord");
  check(cudaEventSynchronize(end), "cudaEventSynchronize");
  float sum = 0;
  check(cudaEventElapsedTime(&sum, begin, end), "cudaEventElapsedTime");
  return sum / static_cast<float>(count);
}

void beside_copies(cudaStream_t stream, cudaStream_t side) {
  constexpr int m = 16384, k = 4096, n = 14336, count = 10;
  const auto *a = filled(std::size_t{m} * k, 1), *b = filled(std::size_t{n} * k, 2);
  auto* const c = allocate<__nv_bfloat16>(std::size_t{m} * n);
  auto *from = allocate<uint4>(copied), *to = allocate<uint4>(copied);
  auto* const moved = allocate<unsigned long long>(1);
  int* stop = nullptr;
  check(cudaMallocHost(reinterpret_cast<void**>(&stop), sizeof *stop), "cudaMallocHost");
  for (const int multiprocessors : {0, 124, 116, 108, 100}) {
    const Product product(m, n, k, multiprocessors);
    for (const int blocks : {0, 8, 16, 24, 32}) {
      *stop = 0;
      check(cudaMemset(moved, 0, sizeof *moved), "cudaMemset");
      if (blocks > 0) copy_kernel<<<blocks, 544, 0, side>>>(from, to, stop, moved);
      const float ms = milliseconds(stream, count, [&] { product.enqueue(stream, a, b, 0, c, c); });
      *stop = 1;
      check(cudaStreamSynchronize(side), "the copies");
      unsigned long long bytes = 0;
      check(cudaMemcpy(&bytes, moved, sizeof bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
      std::printf(
          "{\"bench\": \"matmul next to copies\", \"sm_count_target\": %d, \"blocks\": %d, \"ms\": %.3f, \"tflops\": "
          "%.1f, "
          "\"copied_gb\": %.2f}\n",
          multiprocessors, blocks, ms, 2e-9 * m * n * k / ms, 1e-9 * static_cast<double>(bytes));
      std::fflush(stdout);
    }
  }
}

void residual(cudaStream_t stream) {
  constexpr int m = 16384, k = 8192, n = 2048;
  constexpr std::size_t count = std::size_t{m} * n, bytes = 2 * count;
  const auto *a = filled(std::size_t{m} * k, 1), *b = filled(std::size_t{n} * k, 2), *x = filled(count, 3);
  auto *copied = allocate<__nv_bfloat16>(count), *direct = allocate<__nv_bfloat16>(count);
  const Product product(m, n, k);
  const float with_copy = milliseconds(stream, 50, [&] {
    check(cudaMemcpyAsync(copied, x, bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
    product.enqueue(stream, a, b, 1, copied, copied);
  });
  const float without = milliseconds(stream, 50, [&] { product.enqueue(stream, a, b, 1, x, direct); });
  std::vector<std::uint16_t> one(count), other(count);
  check(cudaMemcpy(one.data(), copied, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  check(cudaMemcpy(other.data(), direct, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::printf("{\"bench\": \"residual as C\", \"ms\": %.4f, \"ms_with_copy\": %.4f, \"bit_identical\": %s}\n", without,
              with_copy, one == other ? "true" : "false");
}

}  // namespace

int main() {
  if (int devices = 0; cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("{\"bench\": \"all\", \"skipped\": \"no device: CUDA's driver sees no GPU\"}");
    return 0;
  }
  int lowest = 0, highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr, side = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, lowest), "cudaStreamCreateWithPriority");
  check(cudaStreamCreateWithPriority(&side, cudaStreamNonBlocking, highest), "cudaStreamCreateWithPriority");
  beside_copies(stream, side);
  residual(stream);
}
