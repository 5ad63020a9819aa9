// SPDX-License-Identifier: Apache-2.0
/// Scaled rotary positions and dropout on Cuda, compared with the CPU, which other tests compare with float64.
#include "cuda_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

TEST(CudaHeads, ScaledRotaryTablesMatchTheCpu) {
  FSDP_NEEDS_DEVICE();
  using Kind = RotaryScaling::Kind;
  for (const RotaryScaling& scaling :
       {RotaryScaling{}, RotaryScaling{.kind = Kind::linear, .factor = 4},
        RotaryScaling{.kind = Kind::llama3, .factor = 8, .low = 1, .high = 4, .original = 32},
        RotaryScaling{.kind = Kind::yarn, .factor = 4, .low = 2, .high = 6, .magnitude = 1.25}}) {
    CudaRank rank;
    Rank cpu(1);
    Matrix<float> expected(64, 16);
    const OnDevice<float> table(rank, {64, 16});
    enqueue(cpu.stream, RotaryTable{.theta = 100, .scaling = scaling, .table = expected});
    enqueue(rank.stream, RotaryTable{.theta = 100, .scaling = scaling, .table = table});
    EXPECT_LT(difference(table.values(), expected.values()), 1e-6);
  }
}

TEST(CudaHeads, DropoutOmitsTheSameElementsAsTheCpu) {
  FSDP_NEEDS_DEVICE();
  for_types([]<class T>(T) {
    for (const Case& c : CudaRank::cases()) {
      CudaRank rank(c);
      Rank host(1);
      const OnDevice<T> x(rank, Matrix<T>::random(1, c.rows, c.columns, c.gap), c.offset);
      const OnDevice<T> y(rank, Matrix<T>::random(2, c.rows, c.columns, c.gap), c.offset);
      Matrix<float> from(c.rows, c.columns), to(c.rows, c.columns);
      from.set(x.values());
      to.set(y.values());
      for (const float rate : {0.0f, 0.3f}) {
        const Dropout dropout{.rate = rate, .key = 5, .first_row = 2, .first_column = 3};
        enqueue(host.stream,
                Scale<float>{.x = from, .y = to, .factor = 0.5f, .write = Write::accumulate, .dropout = dropout});
        enqueue(rank.stream, Scale<T>{.x = x, .y = y, .factor = 0.5f, .write = Write::accumulate, .dropout = dropout});
      }
      EXPECT_LT(difference(y.values(), to.values()), 2 * CudaRank::tolerance<T>) << c.text();
      EXPECT_TRUE(y.gaps_untouched());
    }
  });
}

}  // namespace
}  // namespace fsdp::device
