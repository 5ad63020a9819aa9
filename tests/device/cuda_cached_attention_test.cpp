// SPDX-License-Identifier: Apache-2.0
/// Steps of generation on Cuda: the CPU's, which cached_attention_test.cpp compares with float64.
#include "cuda_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

struct Size {
  std::int64_t sequences, heads, kv_heads, head_dim, capacity, window;
};
const Size sizes[] = {{1, 1, 1, 5, 1, 0}, {2, 6, 2, 64, 40, 0}, {3, 4, 4, 16, 70, 9}, {2, 4, 1, 160, 33, 0}};

TEST(CudaCachedAttention, KeepsAndAttendsAsTheCpuDoes) {
  FSDP_NEEDS_DEVICE();
  for_types_and_variants([](auto type, bool plain) {
    using T = decltype(type);
    if constexpr (!std::is_same_v<T, f16>) {
      for (const Size& s : sizes) {
        CudaRank rank(plain);
        Rank cpu(1);
        const std::int64_t rows = s.sequences * s.kv_heads * s.capacity, columns = s.kv_heads * s.head_dim;
        std::vector<std::int32_t> positions;
        for (std::int64_t i = 0; i < s.sequences; ++i)
          positions.push_back(static_cast<std::int32_t>((s.capacity - 1) * (i + 1) / s.sequences));
        const auto begun = Matrix<T>::random(1, s.sequences * s.capacity, columns, 3, 1.5);
        const auto next = Matrix<T>::random(2, s.sequences, columns, 3);
        const auto q = Matrix<T>::random(3, s.sequences, s.heads * s.head_dim, 8);
        Matrix<T> kept(rows, s.head_dim), out(s.sequences, s.heads * s.head_dim, 8), own_kept = kept, own_out = out;
        const NumbersOnDevice<std::int32_t> device_positions(rank, positions);
        const OnDevice<T> device_begun(rank, begun), device_next(rank, next), device_q(rank, q);
        const OnDevice<T> device_kept(rank, own_kept), device_out(rank, own_out);
        const auto queue = [&](auto& stream, Tensor<const std::int32_t> at, auto begun, auto next, auto q, auto kept,
                               auto out) {
          enqueue(stream, KeepHeads<T>{.sequences = s.sequences, .x = begun, .kept = kept});
          enqueue(stream, KeepHeads<T>{.sequences = s.sequences, .positions = at, .x = next, .kept = kept});
          enqueue(stream, CachedAttention<T>{.kv_heads = s.kv_heads,
                                             .window = s.window,
                                             .longest = s.capacity,
                                             .positions = at,
                                             .q = q,
                                             .keys = kept,
                                             .values = kept,
                                             .out = out});
        };
        queue(cpu.stream, {positions.data(), {s.sequences}}, begun.input(), next.input(), q.input(), kept.view(),
              out.view());
        queue(rank.stream, device_positions.view(), device_begun.input(), device_next.input(), device_q.input(),
              device_kept.view(), device_out.view());
        const std::string what = message(s.sequences, " x ", s.capacity, ", heads ", s.heads, "/", s.kv_heads, " of ",
                                         s.head_dim, ", window ", s.window);
        EXPECT_EQ(device_kept.back().values(), kept.values()) << what;
        EXPECT_LT(difference(device_out.back().values(), out.values()), 2 * cuda_tolerance<T>()) << what;
        EXPECT_TRUE(own_out.gaps_untouched());
        EXPECT_EQ(rank.arena.used(), 0);
      }
    }
  });
}

TEST(CudaCachedAttention, RotaryTablesOfListedPositionsAreTheCpus) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  Rank cpu(1);
  const std::vector<std::int32_t> positions = {7, 0, 63};
  const NumbersOnDevice<std::int32_t> device_positions(rank, positions);
  Matrix<float> expected(3, 16), found(3, 16);
  const OnDevice<float> table(rank, found);
  enqueue(cpu.stream, RotaryTable{.theta = 100, .table = expected.view(), .positions = {positions.data(), {3}}});
  enqueue(rank.stream, RotaryTable{.theta = 100, .table = table.view(), .positions = device_positions.view()});
  EXPECT_LT(difference(table.back().values(), expected.values()), 1e-6);
}

}  // namespace
}  // namespace fsdp::device
