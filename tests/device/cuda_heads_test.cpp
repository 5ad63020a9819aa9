// SPDX-License-Identifier: Apache-2.0
/// Biases, norms of heads, scaled rotary positions and dropout on Cuda: the CPU's, which other tests compare with
/// float64.
#include "cuda_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

struct Size {
  std::int64_t rows, heads, columns, gap;
};
/// Heads whose rows are wide, that are not, and more rows than parts.
const Size sizes[] = {{5, 3, 64, 0}, {5, 3, 64, 8}, {4, 2, 7, 3}, {300, 2, 128, 0}, {1, 4, 1, 0}};

TEST(CudaHeads, NormsAndBiasesAreTheCpus) {
  FSDP_NEEDS_DEVICE();
  for_types_and_variants([](auto type, bool plain) {
    using T = decltype(type);
    if constexpr (!std::is_same_v<T, f16>) {
      for (const Size& s : sizes)
        for (const Write write : {Write::overwrite, Write::accumulate}) {
          const std::int64_t columns = s.heads * s.columns;
          CudaRank rank(plain);
          Rank cpu(1);
          const auto x = Matrix<T>::random(1, s.rows, columns, s.gap, 3), w = Matrix<T>::random(2, 1, s.columns);
          const auto dy = Matrix<T>::random(3, s.rows, columns, s.gap), bias = Matrix<T>::random(4, 1, columns);
          Matrix<T> y(s.rows, columns, s.gap), dx(s.rows, columns, s.gap);
          Matrix<float> rstd(1, s.heads * s.rows);
          auto dw = Matrix<float>::random(5, 1, s.columns), dbias = Matrix<float>::random(6, 1, columns);
          const OnDevice<T> device_x(rank, x), device_w(rank, w), device_dy(rank, dy), device_bias(rank, bias);
          Matrix<T> own_y = y, own_dx = dx;
          Matrix<float> own_rstd = rstd, own_dw = dw, own_dbias = dbias;
          const OnDevice<T> device_y(rank, own_y), device_dx(rank, own_dx);
          const OnDevice<float> device_rstd(rank, own_rstd), device_dw(rank, own_dw), device_dbias(rank, own_dbias);
          const auto queue = [&](auto& stream, auto x, auto w, auto y, auto rstd, auto dy, auto dx, auto dw, auto bias,
                                 auto dbias) {
            enqueue(stream, RmsNorm<T>{.x = x, .weight = w, .eps = 1e-5f, .y = y, .rstd = rstd});
            enqueue(stream, RmsNormBackward<T>{
                                .x = x, .weight = w, .rstd = rstd, .dy = dy, .dx = dx, .dw = dw, .dw_write = write});
            enqueue(stream, AddBias<T>{.bias = bias, .y = y});
            enqueue(stream, BiasBackward<T>{.dy = dy, .dbias = dbias, .write = write});
          };
          queue(cpu.stream, x.input(), w.vector_input(), y.view(), rstd.vector(), dy.input(), dx.view(), dw.vector(),
                bias.vector_input(), dbias.vector());
          queue(rank.stream, device_x.input(), device_w.vector_input(), device_y.view(), device_rstd.vector(),
                device_dy.input(), device_dx.view(), device_dw.vector(), device_bias.vector_input(),
                device_dbias.vector());
          const std::string what = message(s.rows, " x ", s.heads, " x ", s.columns, ", gap ", s.gap);
          EXPECT_LT(difference(device_y.back().values(), y.values()), 2 * cuda_tolerance<T>()) << what;
          // With one column dx is a difference of equal numbers.
          EXPECT_LT(difference(device_dx.back().values(), dx.values()), s.columns == 1 ? 1e9 : 2 * cuda_tolerance<T>())
              << what;
          EXPECT_LT(difference(device_dw.back().values(), dw.values()), 1e-5) << what;
          EXPECT_LT(difference(device_dbias.back().values(), dbias.values()), 1e-5) << what;
          EXPECT_TRUE(own_y.gaps_untouched() && own_dx.gaps_untouched());
          EXPECT_EQ(rank.arena.used(), 0);
        }
    }
  });
}

TEST(CudaHeads, ScaledRotaryTablesAreTheCpus) {
  FSDP_NEEDS_DEVICE();
  using Kind = RotaryScaling::Kind;
  for (const RotaryScaling& scaling :
       {RotaryScaling{}, RotaryScaling{.kind = Kind::linear, .factor = 4},
        RotaryScaling{.kind = Kind::llama3, .factor = 8, .low = 1, .high = 4, .original = 32},
        RotaryScaling{.kind = Kind::yarn, .factor = 4, .low = 2, .high = 6, .magnitude = 1.25}}) {
    CudaRank rank;
    Rank cpu(1);
    Matrix<float> expected(64, 16), found(64, 16);
    const OnDevice<float> table(rank, found);
    enqueue(cpu.stream, RotaryTable{.theta = 100, .scaling = scaling, .table = expected.view()});
    enqueue(rank.stream, RotaryTable{.theta = 100, .scaling = scaling, .table = table.view()});
    EXPECT_LT(difference(table.back().values(), expected.values()), 1e-6);
  }
}

TEST(CudaHeads, ScaledSumsLeaveOutTheSameElementsAsTheCpu) {
  FSDP_NEEDS_DEVICE();
  for_types_and_variants([](auto type, bool plain) {
    using T = decltype(type);
    for (const CudaCase& c : cuda_cases()) {
      CudaRank rank(plain);
      Rank host(1);
      const auto x = Matrix<T>::random(1, c.rows, c.columns, c.gap), y = Matrix<T>::random(2, c.rows, c.columns, c.gap);
      const OnDevice<T> device_x(rank, x, c.offset), device_y(rank, y, c.offset);
      Matrix<float> from(c.rows, c.columns), to(c.rows, c.columns);
      from.set([values = x.values()](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
      to.set([values = y.values()](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
      for (const float rate : {0.0f, 0.3f}) {
        const Dropout dropout{.rate = rate, .key = 5, .first_row = 2, .first_column = 3};
        enqueue(host.stream,
                Scale<float>{
                    .x = from.view(), .y = to.view(), .factor = 0.5f, .write = Write::accumulate, .dropout = dropout});
        enqueue(rank.stream, Scale<T>{.x = device_x.input(),
                                      .y = device_y.view(),
                                      .factor = 0.5f,
                                      .write = Write::accumulate,
                                      .dropout = dropout});
      }
      EXPECT_LT(difference(device_y.back().values(), to.values()), 2 * cuda_tolerance<T>());
      EXPECT_TRUE(y.gaps_untouched());
    }
  });
}

}  // namespace
}  // namespace fsdp::device
