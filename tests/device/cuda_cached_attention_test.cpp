// SPDX-License-Identifier: Apache-2.0
/// Decoding steps on Cuda, compared with the CPU, which cached_attention_test.cpp compares with float64.
#include <cstdint>
#include <utility>
#include <vector>

#include "cuda_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

struct Size {
  std::int64_t sequences, heads, kv_heads, head_dim, capacity, window;
};
const Size sizes[] = {{1, 1, 1, 5, 1, 0}, {2, 6, 2, 64, 40, 0}, {3, 4, 4, 16, 70, 9}, {2, 4, 1, 160, 33, 0}};

TEST(CudaCachedAttention, CachesAndAttendsAsTheCpuDoes) {
  FSDP_NEEDS_DEVICE();
  const auto check = []<class T>(T, bool plain, const Size& s) {
    SCOPED_TRACE(message(s.sequences, " x ", s.capacity, ", heads ", s.heads, "/", s.kv_heads, " of ", s.head_dim,
                         ", window ", s.window));
    std::vector<std::int32_t> positions;
    for (std::int64_t i = 1; i <= s.sequences; ++i)
      positions.push_back(static_cast<std::int32_t>((s.capacity - 1) * i / s.sequences));
    const auto run = [&]<class R>(R& rank) {
      const std::int64_t columns = s.kv_heads * s.head_dim;
      const Held<R, T> begun(rank, Matrix<T>::random(1, s.sequences * s.capacity, columns, 3, 1.5));
      const Held<R, T> next(rank, Matrix<T>::random(2, s.sequences, columns, 3));
      const Held<R, T> q(rank, Matrix<T>::random(3, s.sequences, s.heads * s.head_dim, 8));
      Held<R, T> kept(rank, {s.sequences * s.kv_heads * s.capacity, s.head_dim}),
          out(rank, {s.sequences, s.heads * s.head_dim, 8});
      const Listed<R, std::int32_t> at(rank, positions);
      enqueue(rank.stream, KeepHeads<T>{.sequences = s.sequences, .x = begun, .kept = kept});
      enqueue(rank.stream, KeepHeads<T>{.sequences = s.sequences, .positions = at, .x = next, .kept = kept});
      enqueue(rank.stream, CachedAttention<T>{.kv_heads = s.kv_heads,
                                              .window = s.window,
                                              .longest = s.capacity,
                                              .positions = at,
                                              .q = q,
                                              .keys = kept,
                                              .values = kept,
                                              .out = out});
      EXPECT_TRUE(out.gaps_untouched());
      EXPECT_EQ(rank.arena.used(), 0);
      return std::pair(kept.values(), out.values());
    };
    CudaRank rank(plain);
    Rank cpu(1);
    const auto [kept, out] = run(rank);
    const auto [kept_expected, out_expected] = run(cpu);
    EXPECT_EQ(kept, kept_expected);
    EXPECT_LT(difference(out, out_expected), 2 * CudaRank::tolerance<T>);
  };
  for (const bool plain : {false, true})
    for (const Size& size : sizes) {
      check(float(), plain, size);
      check(bf16(), plain, size);
    }
}

TEST(CudaCachedAttention, RotaryTablesOfListedPositionsMatchTheCpu) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  Rank cpu(1);
  const std::vector<std::int32_t> positions = {7, 0, 63};
  const NumbersOnDevice<std::int32_t> device_positions(rank, positions);
  Matrix<float> expected(3, 16);
  const OnDevice<float> table(rank, {3, 16});
  enqueue(cpu.stream, RotaryTable{.theta = 100, .table = expected, .positions = {positions.data(), {3}}});
  enqueue(rank.stream, RotaryTable{.theta = 100, .table = table, .positions = device_positions});
  EXPECT_LT(difference(table.values(), expected.values()), 1e-6);
}

}  // namespace
}  // namespace fsdp::device
