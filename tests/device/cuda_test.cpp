// SPDX-License-Identifier: Apache-2.0
/// Cuda's memory, queues, products and operations on activations against float64, in float, bf16 and f16.
#include "cuda_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

static_assert(check_device<Cuda>() && Captures<Cuda> && computes_in<Cuda, f16>);

TEST(Cuda, AllocatesZeroedMemoryAndSaysHowMuchThereIs) {
  FSDP_NEEDS_DEVICE();
  Ledger ledger;
  Cuda::Queue queue("test");
  const Block<Cuda> block(ledger, MemoryKind::weights, 1 << 20);
  std::vector<std::byte> found(1 << 20, std::byte{1});
  Cuda::move(queue, block.data(), found.data(), block.bytes());
  queue.synchronize();
  EXPECT_EQ(found, std::vector<std::byte>(1 << 20));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 256, 0u);
  EXPECT_THROW(Cuda::allocate(std::int64_t{1} << 50), MemoryError);
}

TEST(Cuda, QueuesAreOrderedByEvents) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  Cuda::Queue other("other");
  Matrix<float> a = Matrix<float>::random(1, 1, 1 << 20), b(1, 1 << 20), c(1, 1 << 20);
  const OnDevice<float> first(rank, a), second(rank, b), third(rank, c);
  EXPECT_TRUE(Cuda::Event().happened());
  const CudaRange range("add five times, then copy");
  for (int i = 0; i < 5; ++i) enqueue(rank.stream, Add<float>{.x = first.input(), .y = second.view()});
  enqueue(rank.stream, Copy<float>{.x = first.input(), .y = second.view()});
  const Cuda::Event copied = rank.stream.record();
  other.wait(copied);
  Cuda::move(other, reinterpret_cast<const std::byte*>(second.view().data()),
             reinterpret_cast<std::byte*>(third.view().data()), 4 << 20);
  const Cuda::Event moved = other.record(), same = moved;
  other.synchronize();
  EXPECT_TRUE(copied.happened() && moved.happened() && same.happened());
  EXPECT_EQ(third.back().values(), a.values());
}

TEST(Cuda, GraphsAreAskedAgainForWhatTheyKeep) {
  FSDP_NEEDS_DEVICE();
#if !defined(NDEBUG)
  GTEST_SKIP() << "debug builds keep no graphs";
#endif
  CudaRank rank;
  Cuda::Queue other("other");
  Matrix<float> a = Matrix<float>::random(1, 1, 1 << 20), b(1, 1 << 20), c(1, 1 << 20);
  const OnDevice<float> first(rank, a), sum(rank, b), copied(rank, c);
  enqueue(rank.stream, Fill<float>{.y = sum.view(), .value = 0.0f});
  enqueue(rank.stream, Fill<float>{.y = copied.view(), .value = -1.0f});
  const Cuda::Graph graph = Cuda::capture(rank.stream, [&] {
    enqueue(rank.stream, Add<float>{.x = first.input(), .y = sum.view()});
    other.wait(rank.stream.record());
    Cuda::move(other, reinterpret_cast<const std::byte*>(sum.view().data()),
               reinterpret_cast<std::byte*>(copied.view().data()), 4 << 20);
    rank.stream.wait(other.record());
  });
  EXPECT_EQ(copied.back().values(), Values(1 << 20, -1.0)) << "what is captured is not done";
  for (int i = 0; i < 3; ++i) graph.launch(rank.stream);
  Values thrice = a.values();
  for (double& value : thrice) {
    const auto once = static_cast<float>(value);
    value = once + once + once;
  }
  EXPECT_EQ(copied.back().values(), thrice);
}

TEST(Cuda, MatmulIsTheReferenceForEveryTranspositionStrideAndWrite) {
  FSDP_NEEDS_DEVICE();
  const auto check = [](auto operand, auto result) {
    using A = decltype(operand);
    using C = decltype(result);
    CudaRank rank(false, 40 << 20);  // cuBLASLt's workspace
    struct Sizes {
      std::int64_t m, n, k;
    };
    for (const Sizes s : {Sizes{1, 1, 1}, {7, 15, 1}, {15, 257, 7}, {64, 96, 257}, {128, 64, 64}})
      for (int flags = 0; flags < 16; ++flags) {
        const bool ta = flags & 1, tb = flags & 2, accumulate = flags & 4;
        const std::int64_t gap = flags & 8 ? 9 : 0;
        auto a = Matrix<A>::random(1, ta ? s.k : s.m, ta ? s.m : s.k, gap);
        auto b = Matrix<A>::random(2, tb ? s.n : s.k, tb ? s.k : s.n, 2 * gap);
        Matrix<C> c(s.m, s.n, 3 * gap);
        if (accumulate) c = Matrix<C>::random(3, s.m, s.n, 3 * gap);
        Values expected = accumulate ? c.values() : Values(static_cast<std::size_t>(s.m * s.n));
        const Values left = a.values(), right = b.values();
        for (std::int64_t i = 0; i < s.m; ++i)
          for (std::int64_t j = 0; j < s.n; ++j)
            for (std::int64_t l = 0; l < s.k; ++l)
              expected[static_cast<std::size_t>(i * s.n + j)] +=
                  left[static_cast<std::size_t>(ta ? l * s.m + i : i * s.k + l)] *
                  right[static_cast<std::size_t>(tb ? j * s.k + l : l * s.n + j)];
        const OnDevice<A> da(rank, a), db(rank, b);
        const OnDevice<C> dc(rank, c);
        enqueue(rank.stream, Matmul<A, C>{.a = {da.input(), ta},
                                          .b = {db.input(), tb},
                                          .c = dc.view(),
                                          .write = accumulate ? Write::accumulate : Write::overwrite});
        EXPECT_LT(difference(dc.back().values(), expected), cuda_tolerance<C>()) << s.m << " " << s.n << " " << flags;
        EXPECT_TRUE(c.gaps_untouched());
      }
    EXPECT_EQ(rank.arena.used(), 0);
  };
  check(float(), float());
  check(bf16(), bf16());
  check(bf16(), float());
  check(f16(), f16());
  check(f16(), float());
}

TEST(Cuda, RmsNormAndItsBackwardAreTheReference) {
  FSDP_NEEDS_DEVICE();
  for_types_and_variants([](auto type, bool plain) {
    using T = decltype(type);
    for (const CudaCase& c : cuda_cases())
      for (const bool in_place : {false, true})
        for (const Write write : {Write::overwrite, Write::accumulate}) {
          if (in_place && c.rows > 5) continue;
          CudaRank rank(plain);
          const auto x = Matrix<T>::random(1, c.rows, c.columns, c.gap, 3), w = Matrix<T>::random(2, 1, c.columns);
          auto dy = Matrix<T>::random(3, c.rows, c.columns, c.gap), dx = Matrix<T>::random(4, c.rows, c.columns, c.gap);
          auto dw = Matrix<float>::random(5, 1, c.columns);
          if (write == Write::overwrite) dx = Matrix<T>(c.rows, c.columns, c.gap), dw = Matrix<float>(1, c.columns);
          Matrix<T> y(c.rows, c.columns, c.gap);
          Matrix<float> rstd(1, c.rows);
          Values dx_expected, dw_expected(static_cast<std::size_t>(c.columns));
          const Values xs = x.values(), ws = w.values(), dys = dy.values();
          const Values y_expected = norm_reference(xs, ws, static_cast<double>(1e-5f));
          const auto columns = static_cast<std::size_t>(c.columns);
          for (std::size_t i = 0; i < xs.size(); i += columns) {
            double squares = 0, dot = 0;
            for (std::size_t j = 0; j < columns; ++j) squares += xs[i + j] * xs[i + j];
            const double scale = 1 / std::sqrt(squares / static_cast<double>(columns) + static_cast<double>(1e-5f));
            for (std::size_t j = 0; j < columns; ++j)
              dot += dys[i + j] * ws[j] * xs[i + j] * scale / static_cast<double>(columns);
            for (std::size_t j = 0; j < columns; ++j) {
              dx_expected.push_back(scale * (dys[i + j] * ws[j] - xs[i + j] * scale * dot));
              dw_expected[j] += dys[i + j] * xs[i + j] * scale;
            }
          }
          const OnDevice<T> device_x(rank, x, c.offset), device_w(rank, w), device_y(rank, y, c.offset);
          const OnDevice<T> device_dy(rank, dy, c.offset), device_dx(rank, dx, c.offset);
          const OnDevice<float> device_rstd(rank, rstd), device_dw(rank, dw);
          enqueue(rank.stream, RmsNorm<T>{.x = device_x.input(),
                                          .weight = device_w.vector_input(),
                                          .eps = 1e-5f,
                                          .y = device_y.view(),
                                          .rstd = device_rstd.vector()});
          EXPECT_LT(difference(device_y.back().values(), y_expected), cuda_tolerance<T>());
          const OnDevice<T>& out = in_place ? device_dy : device_dx;
          if (write == Write::accumulate) {
            dx_expected = plus(dx_expected, (in_place ? dy : dx).values());
            dw_expected = plus(dw_expected, dw.values());
          }
          enqueue(rank.stream, RmsNormBackward<T>{.x = device_x.input(),
                                                  .weight = device_w.vector_input(),
                                                  .rstd = device_rstd.vector_input(),
                                                  .dy = device_dy.input(),
                                                  .dx = out.view(),
                                                  .dx_write = write,
                                                  .dw = device_dw.vector(),
                                                  .dw_write = write});
          // With one column dx is a difference of equal numbers.
          EXPECT_LT(difference(out.back().values(), dx_expected), c.columns == 1 ? 1e9 : 2 * cuda_tolerance<T>())
              << c.rows << " x " << c.columns;
          EXPECT_LT(difference(device_dw.back().values(), dw_expected), 1e-5) << c.rows << " x " << c.columns;
          EXPECT_TRUE(y.gaps_untouched() && dx.gaps_untouched() && dy.gaps_untouched());
          EXPECT_EQ(rank.arena.used(), 0);
        }
  });
}

/// In float or 16 bits: rows of too many columns to be kept, which take more shared memory than a launch gets unasked;
/// rows of a block's most threads; and more rows than backward's blocks do at once, by one team in each or by two.
TEST(Cuda, RmsNormOfLongRowsAndOfManyIsThePlainOne) {
  FSDP_NEEDS_DEVICE();
  const auto compare = [](auto type, std::int64_t rows, std::int64_t columns) {
    using T = decltype(type);
    const auto x = Matrix<T>::random(1, rows, columns, 0, 3), w = Matrix<T>::random(2, 1, columns);
    const auto dy = Matrix<T>::random(3, rows, columns);
    Values found[2];
    for (const bool plain : {false, true}) {
      CudaRank rank(plain, 4 << 20);
      Matrix<T> y(rows, columns), dx(rows, columns);
      Matrix<float> rstd(1, rows), dw(1, columns);
      const OnDevice<T> device_x(rank, x), device_w(rank, w), device_dy(rank, dy), device_y(rank, y), out(rank, dx);
      const OnDevice<float> device_rstd(rank, rstd), sums(rank, dw);
      enqueue(rank.stream, RmsNorm<T>{.x = device_x.input(),
                                      .weight = device_w.vector_input(),
                                      .y = device_y.view(),
                                      .rstd = device_rstd.vector()});
      enqueue(rank.stream, RmsNormBackward<T>{.x = device_x.input(),
                                              .weight = device_w.vector_input(),
                                              .rstd = device_rstd.vector_input(),
                                              .dy = device_dy.input(),
                                              .dx = out.view(),
                                              .dw = sums.vector()});
      for (const Values& part : {device_y.back().values(), out.back().values(), sums.back().values()})
        found[plain].insert(found[plain].end(), part.begin(), part.end());
    }
    EXPECT_LT(difference(found[0], found[1]), 2 * cuda_tolerance<T>()) << rows << " x " << columns;
  };
  for (const auto& [rows, columns] : {std::pair{3, 12288}, {3, 8192}, {257, 2056}, {513, 520}}) {
    compare(float(), rows, columns);
    compare(bf16(), rows, columns);
    compare(f16(), rows, columns);
  }
}

TEST(Cuda, RmsNormBackwardWithoutWeightsGradientWritesDxAlone) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  const auto x = Matrix<float>::random(1, 3, 40), w = Matrix<float>::random(2, 1, 40);
  auto one = Matrix<float>::random(3, 3, 40), two = one, dw = Matrix<float>(1, 40), rstd = Matrix<float>(1, 3);
  Matrix<float> y(3, 40);
  const OnDevice<float> dx(rank, x), device_w(rank, w), a(rank, one), b(rank, two), device_dw(rank, dw);
  const OnDevice<float> device_y(rank, y), device_rstd(rank, rstd);
  enqueue(rank.stream, RmsNorm<float>{.x = dx.input(),
                                      .weight = device_w.vector_input(),
                                      .eps = 1e-5f,
                                      .y = device_y.view(),
                                      .rstd = device_rstd.vector()});
  for (const bool with_dw : {false, true})
    enqueue(rank.stream, RmsNormBackward<float>{.x = dx.input(),
                                                .weight = device_w.vector_input(),
                                                .rstd = device_rstd.vector_input(),
                                                .dy = (with_dw ? b : a).input(),
                                                .dx = (with_dw ? b : a).view(),
                                                .dx_write = Write::overwrite,
                                                .dw = with_dw ? device_dw.vector() : Tensor<float>(nullptr, {40}),
                                                .dw_write = Write::overwrite});
  EXPECT_EQ(a.back().values(), b.back().values());
}

TEST(Cuda, RmsNormBackwardOfNoRowsClearsTheWeightsGradientOrLeavesIt) {
  FSDP_NEEDS_DEVICE();
  for (const bool plain : {false, true}) {
    CudaRank rank(plain);
    const auto w = Matrix<float>::random(1, 1, 40);
    auto dw = Matrix<float>::random(2, 1, 40);
    const OnDevice<float> device_w(rank, w), device_dw(rank, dw);
    const Tensor<float> none(device_w.view().data(), {0, 40});
    const auto backward = [&](Write write) {
      enqueue(rank.stream, RmsNormBackward<float>{.x = none,
                                                  .weight = device_w.vector_input(),
                                                  .rstd = Tensor<const float>(none.data(), {0}),
                                                  .dy = none,
                                                  .dx = none,
                                                  .dx_write = Write::overwrite,
                                                  .dw = device_dw.vector(),
                                                  .dw_write = write});
      return device_dw.back().values();
    };
    const Values before = dw.values();
    EXPECT_EQ(backward(Write::accumulate), before);
    EXPECT_EQ(backward(Write::overwrite), Values(40));
  }
}

TEST(Cuda, RopeRotatesByHalvesWithinDocumentsAndBack) {
  FSDP_NEEDS_DEVICE();
  for_types_and_variants([](auto type, bool plain) {
    using T = decltype(type);
    for (const std::int64_t head_dim : {2, 6, 16, 64, 130})
      for (const bool packed : {false, true}) {
        CudaRank rank(plain);
        const std::int64_t positions = 12, tokens = 24, heads = 3, half = head_dim / 2;
        const std::vector<std::int64_t> lengths = {0, 5, 5, 12, 13, 24};
        Matrix<float> table(positions, head_dim);
        auto x = Matrix<T>::random(1, tokens, heads * head_dim, 8);
        const Values before = x.values();
        Values expected = before;
        for (std::int64_t t = 0; t < tokens; ++t)
          for (std::int64_t i = 0; i < heads * head_dim; ++i) {
            if (i % head_dim >= half) continue;
            const CumulativeLengths documents = packed ? CumulativeLengths(lengths) : CumulativeLengths();
            const auto position = static_cast<double>(t - document_of(documents, positions, t).begin);
            const double angle =
                position * std::pow(1e4, -2.0 * static_cast<double>(i % head_dim) / static_cast<double>(head_dim));
            const auto low = static_cast<std::size_t>(t * heads * head_dim + i),
                       high = low + static_cast<std::size_t>(half);
            expected[low] = before[low] * std::cos(angle) - before[high] * std::sin(angle);
            expected[high] = before[high] * std::cos(angle) + before[low] * std::sin(angle);
          }
        const OnDevice<float> device_table(rank, table);
        const OnDevice<T> device_x(rank, x);
        const CumulativeLengths documents = packed ? CumulativeLengths(lengths) : CumulativeLengths();
        enqueue(rank.stream, RotaryTable{.theta = 1e4f, .table = device_table.view()});
        enqueue(rank.stream, Rope<T>{.x = device_x.view(),
                                     .table = device_table.input(),
                                     .rotation = Rotation::forward,
                                     .documents = documents});
        EXPECT_LT(difference(device_x.back().values(), expected), cuda_tolerance<T>()) << head_dim;
        enqueue(rank.stream, Rope<T>{.x = device_x.view(),
                                     .table = device_table.input(),
                                     .rotation = Rotation::backward,
                                     .documents = documents});
        EXPECT_LT(difference(device_x.back().values(), before), 2 * cuda_tolerance<T>());
        EXPECT_TRUE(x.gaps_untouched());
      }
  });
}

TEST(Cuda, SwiGluAndItsBackwardAreTheReference) {
  FSDP_NEEDS_DEVICE();
  for_types_and_variants([](auto type, bool plain) {
    using T = decltype(type);
    for (const CudaCase& c : cuda_cases()) {
      CudaRank rank(plain);
      auto gate = Matrix<T>::random(1, c.rows, c.columns, c.gap, 12),
           up = Matrix<T>::random(2, c.rows, c.columns, c.gap);
      auto dh = Matrix<T>::random(3, c.rows, c.columns, c.gap);
      Matrix<T> h(c.rows, c.columns, c.gap);
      const Values g = gate.values(), u = up.values(), d = dh.values();
      Values h_expected, dgate_expected, dup_expected;
      for (std::size_t i = 0; i < g.size(); ++i) {
        const double sigma = 1 / (1 + std::exp(-g[i]));
        h_expected.push_back(g[i] * sigma * u[i]);
        dgate_expected.push_back(d[i] * u[i] * sigma * (1 + g[i] * (1 - sigma)));
        dup_expected.push_back(d[i] * g[i] * sigma);
      }
      const OnDevice<T> device_gate(rank, gate, c.offset), device_up(rank, up, c.offset), device_dh(rank, dh, c.offset),
          device_h(rank, h, c.offset);
      enqueue(rank.stream, SwiGlu<T>{.gate = device_gate.input(), .up = device_up.input(), .h = device_h.view()});
      EXPECT_LT(difference(device_h.back().values(), h_expected), cuda_tolerance<T>());
      enqueue(rank.stream,
              SwiGluBackward<T>{.gate = device_gate.view(), .up = device_up.view(), .dh = device_dh.view()});
      EXPECT_EQ(device_dh.back().values(), h.values());
      EXPECT_LT(difference(device_gate.back().values(), dgate_expected), cuda_tolerance<T>());
      EXPECT_LT(difference(device_up.back().values(), dup_expected), cuda_tolerance<T>());
      EXPECT_TRUE(gate.gaps_untouched() && up.gaps_untouched() && dh.gaps_untouched() && h.gaps_untouched());
    }
  });
}

TEST(Cuda, AddCopyAndFillCoverEveryElementAndNoGap) {
  FSDP_NEEDS_DEVICE();
  for_types_and_variants([](auto type, bool plain) {
    using T = decltype(type);
    for (const CudaCase& c : cuda_cases()) {
      CudaRank rank(plain);
      const auto x = Matrix<T>::random(1, c.rows, c.columns, c.gap);
      auto y = Matrix<T>::random(2, c.rows, c.columns, c.gap);
      Matrix<float> wide(c.rows, c.columns, c.gap);
      Matrix<bf16> narrow(c.rows, c.columns, c.gap), rounded(c.rows, c.columns);
      Matrix<T> same(c.rows, c.columns, c.gap);
      const Values expected = plus(x.values(), y.values()), exact = x.values();
      rounded.set([&](std::int64_t i) { return exact[static_cast<std::size_t>(i)]; });
      const OnDevice<T> device_x(rank, x, c.offset), device_y(rank, y, c.offset), device_same(rank, same);
      const OnDevice<float> device_wide(rank, wide, c.offset);
      const OnDevice<bf16> device_narrow(rank, narrow);
      enqueue(rank.stream, Add<T>{.x = device_x.input(), .y = device_y.view()});
      EXPECT_LT(difference(device_y.back().values(), expected), cuda_tolerance<T>());
      enqueue(rank.stream, Copy<T, float>{.x = device_x.input(), .y = device_wide.view()});
      EXPECT_EQ(device_wide.back().values(), exact);
      enqueue(rank.stream, Copy<T, bf16>{.x = device_x.input(), .y = device_narrow.view()});
      EXPECT_EQ(device_narrow.back().values(), rounded.values());
      enqueue(rank.stream, Copy<T>{.x = device_x.input(), .y = device_same.view()});
      EXPECT_EQ(device_same.back().values(), exact);
      enqueue(rank.stream, Fill<T>{.y = device_y.view(), .value = -2});
      EXPECT_EQ(device_y.back().values(), Values(expected.size(), -2));
      EXPECT_TRUE(y.gaps_untouched() && wide.gaps_untouched() && narrow.gaps_untouched() && same.gaps_untouched());
    }
  });
}

}  // namespace
}  // namespace fsdp::device
