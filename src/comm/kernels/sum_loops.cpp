// SPDX-License-Identifier: Apache-2.0
/// @file
/// The inner loops of ordered sums.
#include "../sum_loops.hpp"

#include "../../fsdp/device/cpu/isa.hpp"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace fsdp::comm {
namespace {

#define FSDP_INLINE [[gnu::always_inline]] inline

struct Plain {
  using Stored = float;
  FSDP_INLINE float operator()(float value) const { return value; }
};
struct Widened {
  using Stored = bf16;
  FSDP_INLINE float operator()(bf16 value) const { return static_cast<float>(value); }
};
/// Computes float(bf16(value)) in 32-bit steps, which vectorise without packing.
struct Rounded {
  using Stored = float;
  FSDP_INLINE float operator()(float value) const {
    const auto word = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t nearest = word + 0x7fffu + ((word >> 16) & 1u);
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    return __builtin_bit_cast(float, (is_nan ? word | 0x400000u : nearest) & 0xffff0000u);
  }
};

template <class Read>
FSDP_INLINE const typename Read::Stored* stored(const Contribution& from, std::int64_t at) {
  return reinterpret_cast<const typename Read::Stored*>(from.data) + at;
}

/// Calls body with the reader for the contribution's stored type.
template <class Body>
FSDP_INLINE void with_reader(const Contribution& from, DType wire, const Body& body) {
  if (from.stored == DType::bf16)
    body(Widened{});
  else if (wire == DType::bf16)
    body(Rounded{});
  else
    body(Plain{});
}

template <class Read>
FSDP_INLINE void set(Read read, const typename Read::Stored* __restrict a, std::int64_t count, float* __restrict sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = read(a[i]);
}
template <class Read>
FSDP_INLINE void add(Read read, const typename Read::Stored* __restrict a, std::int64_t count, float* __restrict sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += read(a[i]);
}
template <class Read, class ReadNext>
FSDP_INLINE void set_sum(Read read, const typename Read::Stored* __restrict a, ReadNext read_next,
                         const typename ReadNext::Stored* __restrict b, std::int64_t count, float* __restrict sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = read(a[i]) + read_next(b[i]);
}
/// Adds a, then b, to the sum; does not add a + b, which would round differently.
template <class Read, class ReadNext>
FSDP_INLINE void add_both(Read read, const typename Read::Stored* __restrict a, ReadNext read_next,
                          const typename ReadNext::Stored* __restrict b, std::int64_t count, float* __restrict sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = (sum[i] + read(a[i])) + read_next(b[i]);
}

FSDP_INLINE void stream(const float* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
#ifdef __SSE2__
  for (; i < count && reinterpret_cast<std::uintptr_t>(to + i) % 16 != 0; ++i) to[i] = from[i];
  for (; i + 4 <= count; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
#endif
  for (; i < count; ++i) to[i] = from[i];
}

void sum(const SumBlock& block, std::int64_t at, std::int64_t count) {
  alignas(64) float own[sum_block];
  float* const to = block.to + at;
  float* const sum = block.direct ? to : own;
  const Contribution* const from = block.contributions;
  const bool adds = block.write == Write::accumulate;
  with_reader(
      from[0], block.wire, [&](auto read) __attribute__((always_inline)) {
        const auto* const first = stored<decltype(read)>(from[0], at);
        if (block.ranks == 1) return adds ? add(read, first, count, sum) : set(read, first, count, sum);
        with_reader(
            from[1], block.wire, [&](auto read_next) __attribute__((always_inline)) {
              const auto* const second = stored<decltype(read_next)>(from[1], at);
              if (adds)
                add_both(read, first, read_next, second, count, sum);
              else
                set_sum(read, first, read_next, second, count, sum);
            });
      });
  for (std::int64_t rank = 2; rank < block.ranks; ++rank)
    with_reader(
        from[rank], block.wire, [&](auto read) __attribute__((always_inline)) {
          add(read, stored<decltype(read)>(from[rank], at), count, sum);
        });
  if (block.direct) return;
  if (block.streamed)
    stream(sum, count, to);
  else
    set(Plain{}, sum, count, to);
}

void round(const float* __restrict from, std::int64_t count, bf16* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = bf16(from[i]);
}

}  // namespace
}  // namespace fsdp::comm

namespace fsdp::device::cpu {

FSDP_EXPORT_KERNELS(comm::SumLoops, {.sum = comm::sum, .round = comm::round})

}  // namespace fsdp::device::cpu
