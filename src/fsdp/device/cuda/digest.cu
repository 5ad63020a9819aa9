// SPDX-License-Identifier: Apache-2.0
/// @file
/// Digests of tensors: sums of integers, which may be added in any order.
#include "kernel.cuh"

namespace fsdp::device::cuda {
namespace {

using Word = unsigned long long;

template <class T>
__device__ __forceinline__ Word bits_of(T value) {
  if constexpr (sizeof(T) == 4)
    return __builtin_bit_cast(std::uint32_t, value);
  else
    return __builtin_bit_cast(std::uint16_t, value);
}

template <class T>
__global__ void digest_chunks(const T* x, std::int64_t count, std::int64_t begin, Word key, std::int64_t chunk,
                              std::int64_t chunks, Word* partials) {
  for_rows_of_block(chunks, [&](std::int64_t index) {
    const std::int64_t first = index * chunk, end = first + chunk < count ? first + chunk : count;
    Word own = 0;
    for (std::int64_t at = first + threadIdx.x; at < end; at += blockDim.x)
      own += (2 * static_cast<Word>(begin + at) + 1) * bits_of(x[at]);
    const Word total = block_sum(own);
    if (threadIdx.x == 0) partials[index] = key * total;
  });
}

__global__ void add_digests(const Word* partials, std::int64_t count, Word* sum) {
  Word own = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) own += partials[i];
  const Word total = block_sum(own);
  if (threadIdx.x == 0) sum[0] += total;
}

Word* words(const Tensor<std::int64_t>& tensor) { return reinterpret_cast<Word*>(tensor.data()); }

}  // namespace

template <class T>
void compute(Lane lane, const AddDigest<T>& op, Scratch memory) {
  const std::int64_t chunks = op.chunks();
  if (chunks == 0) return;
  Word* const partials = words(memory.as<std::int64_t>({chunks}));
  launch(lane, "digest", digest_chunks<T>, grid_of_rows(chunks, lane.plain ? 1 : element_threads), 0, op.x.data(),
         op.x.numel(), op.begin, static_cast<Word>(op.key), AddDigest<T>::chunk, chunks, partials);
  launch(lane, "digest_sum", add_digests, Grid{.threads = lane.plain ? warp : most_threads}, 0,
         static_cast<const Word*>(partials), chunks, words(op.sum));
}

FSDP_FOR_TYPES(compute, Lane, AddDigest, Scratch)

}  // namespace fsdp::device::cuda
