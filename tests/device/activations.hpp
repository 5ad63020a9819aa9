// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of operations on activations against float64, on the ranks of any device.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "reference.hpp"

namespace fsdp::device::reference {

inline constexpr float norm_eps = 1e-5f;

/// Checks y and the gradients. Each row has `heads` adjacent norms of c.columns elements. With a weight in float next
/// to T, y is rounded once.
template <class T, class R, class W = T>
void expect_norm(const Case& c, std::int64_t heads, bool in_place, Write write) {
  SCOPED_TRACE(message(c.text(), ", heads ", heads, in_place ? ", in place" : ""));
  R rank(c);
  const std::int64_t columns = heads * c.columns;
  const bool adds = write == Write::accumulate;
  const Held<R, T> x(rank, Matrix<T>::random(1, c.rows, columns, c.gap, 3), c.offset);
  const Held<R, W> w(rank, Matrix<W>::random_numbers(2, c.columns));
  Held<R, T> dy(rank, Matrix<T>::random(3, c.rows, columns, c.gap), c.offset);
  Held<R, T> y(rank, {c.rows, columns, c.gap}, c.offset);
  Held<R, T> dx(rank, adds ? Matrix<T>::random(4, c.rows, columns, 2 * c.gap) : Matrix<T>(c.rows, columns, 2 * c.gap),
                c.offset);
  Held<R, float> rstd(rank, Matrix<float>::numbers(heads * c.rows));
  Held<R, float> dw(rank, adds ? Matrix<float>::random_numbers(5, c.columns) : Matrix<float>::numbers(c.columns));
  Held<R, T>& out = in_place ? dy : dx;
  const NormGradients of_seed = norm_gradients(x.values(), w.values(), dy.values(), norm_eps);
  Values dx_expected = of_seed.dx, dw_expected = of_seed.dw;
  if (adds) {
    dx_expected = plus(std::move(dx_expected), out.values());
    dw_expected = plus(std::move(dw_expected), dw.values());
  }
  enqueue(rank.stream, RmsNorm<T, W>{.x = x, .weight = w, .eps = norm_eps, .y = y, .rstd = rstd});
  EXPECT_LT(difference(y.values(), norm_reference(x.values(), w.values(), norm_eps)),
            (std::is_same_v<T, W> ? R::norm_tolerances : 1.001) * R::template tolerance<T>);
  enqueue(rank.stream,
          RmsNormBackward<T, W>{
              .x = x, .weight = w, .rstd = rstd, .dy = dy, .dx = out, .dx_write = write, .dw = dw, .dw_write = write});
  // With one column, dx is the difference of two equal numbers.
  EXPECT_LT(difference(out.values(), dx_expected), c.columns == 1 ? 1e9 : 2 * R::template tolerance<T>);
  EXPECT_LT(difference(dw.values(), dw_expected), R::sums_tolerance(c.rows));
  EXPECT_TRUE(y.gaps_untouched() && dx.gaps_untouched() && dy.gaps_untouched());
  EXPECT_EQ(rank.arena.used(), 0);
}

template <class T, class R, class W = T>
void expect_norms() {
  for (const Case& c : R::cases())
    for (const std::int64_t heads : {1, 3})
      for (const bool in_place : {false, true})
        for (const Write write : {Write::overwrite, Write::accumulate})
          if (c.rows * c.columns < 10000 || (heads == 1 && !in_place)) expect_norm<T, R, W>(c, heads, in_place, write);
}

/// Checks the rotation and its inverse, within documents or within sequences of `length` tokens.
template <class T, class R>
void expect_rope(CumulativeLengths documents) {
  constexpr std::int64_t length = 12, heads = 3;
  for (const Case& c : R::variants())
    for (const std::int64_t head_dim : {2, 6, 14, 16, 30, 64, 130, 514}) {
      SCOPED_TRACE(message(c.text(), ", heads of ", head_dim));
      R rank(c);
      Held<R, float> table(rank, {length, head_dim});
      Held<R, T> x(rank, Matrix<T>::random(1, 2 * length, heads * head_dim, 8));
      const Values before = x.values();
      const Values expected =
          rope_reference(before, static_cast<std::size_t>(heads * head_dim), static_cast<std::size_t>(head_dim), 1e4,
                         [&](std::int64_t t) { return t - first_of_document(documents, length, t); });
      const auto rotate = [&](Rotation rotation) {
        enqueue(rank.stream, Rope<T>{.x = x, .table = table, .rotation = rotation, .documents = documents});
      };
      enqueue(rank.stream, RotaryTable{.theta = 1e4f, .table = table});
      rotate(Rotation::forward);
      EXPECT_LT(difference(x.values(), expected), R::template tolerance<T>);
      rotate(Rotation::backward);
      EXPECT_LT(difference(x.values(), before), 2 * R::template tolerance<T>);
      EXPECT_TRUE(x.gaps_untouched());
    }
}

inline double swiglu_reference(double gate, double up) { return gate / (1 + std::exp(-gate)) * up; }

/// Checks that the backward matches finite differences.
template <class T, class R>
void expect_swiglu() {
  for (const Case& c : R::cases()) {
    SCOPED_TRACE(c.text());
    R rank(c);
    Held<R, T> gate(rank, Matrix<T>::random(1, c.rows, c.columns, c.gap, 12), c.offset);
    Held<R, T> up(rank, Matrix<T>::random(2, c.rows, c.columns, 2 * c.gap), c.offset);
    Held<R, T> dh(rank, Matrix<T>::random(3, c.rows, c.columns, c.gap), c.offset);
    Held<R, T> h(rank, {c.rows, c.columns, c.gap}, c.offset);
    const Values g = gate.values(), u = up.values(), d = dh.values();
    Values h_expected, dgate_expected, dup_expected;
    for (std::size_t i = 0; i < g.size(); ++i) {
      constexpr double step = 1e-5;
      h_expected.push_back(swiglu_reference(g[i], u[i]));
      dgate_expected.push_back(d[i] * (swiglu_reference(g[i] + step, u[i]) - swiglu_reference(g[i] - step, u[i])) /
                               (2 * step));
      dup_expected.push_back(d[i] * swiglu_reference(g[i], 1));
    }
    enqueue(rank.stream, SwiGlu<T>{.gate = gate, .up = up, .h = h});
    EXPECT_LT(difference(h.values(), h_expected), R::template tolerance<T>);
    enqueue(rank.stream, SwiGluBackward<T>{.gate = gate, .up = up, .dh = dh});
    EXPECT_EQ(dh.values(), h.values());
    EXPECT_LT(difference(gate.values(), dgate_expected), R::template tolerance<T>);
    EXPECT_LT(difference(up.values(), dup_expected), R::template tolerance<T>);
    EXPECT_TRUE(gate.gaps_untouched() && up.gaps_untouched() && dh.gaps_untouched() && h.gaps_untouched());
  }
}

/// Checks that every element is written and no gap between rows.
template <class T, class R>
void expect_add_copy_and_fill() {
  for (const Case& c : R::cases()) {
    SCOPED_TRACE(c.text());
    R rank(c);
    const Held<R, T> x(rank, Matrix<T>::random(1, c.rows, c.columns, c.gap), c.offset);
    Held<R, T> y(rank, Matrix<T>::random(2, c.rows, c.columns, 2 * c.gap), c.offset);
    Held<R, T> same(rank, {c.rows, c.columns, c.gap});
    Held<R, float> wide(rank, {c.rows, c.columns, c.gap}, c.offset);
    Held<R, bf16> narrow(rank, {c.rows, c.columns, 2 * c.gap});
    const Values exact = x.values(), expected = plus(exact, y.values());
    enqueue(rank.stream, Add<T>{.x = x, .y = y});
    EXPECT_LT(difference(y.values(), expected), R::template tolerance<T>);
    enqueue(rank.stream, Copy<T, float>{.x = x, .y = wide});
    EXPECT_EQ(wide.values(), exact);
    enqueue(rank.stream, Copy<T, bf16>{.x = x, .y = narrow});
    EXPECT_EQ(narrow.values(), rounded_to<bf16>(exact));
    enqueue(rank.stream, Copy<T>{.x = x, .y = same});
    EXPECT_EQ(same.values(), exact);
    enqueue(rank.stream, Fill<T>{.y = y, .value = -2});
    EXPECT_EQ(y.values(), Values(expected.size(), -2));
    EXPECT_TRUE(y.gaps_untouched() && wide.gaps_untouched() && narrow.gaps_untouched() && same.gaps_untouched());
  }
}

/// Checks that a bias is added to every row, and that its gradient is the sum of all rows.
template <class T, class R>
void expect_bias() {
  for (const Case& c : R::cases())
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      SCOPED_TRACE(c.text());
      R rank(c);
      const Held<R, T> bias(rank, Matrix<T>::random_numbers(1, c.columns));
      Held<R, T> y(rank, Matrix<T>::random(2, c.rows, c.columns, c.gap), c.offset);
      Held<R, float> dbias(rank, write == Write::accumulate ? Matrix<float>::random_numbers(3, c.columns)
                                                            : Matrix<float>::numbers(c.columns));
      const Values before = y.values(), b = bias.values();
      Values sum = write == Write::accumulate ? dbias.values() : Values(b.size()), expected = before;
      for (std::size_t i = 0; i < before.size(); ++i) {
        expected[i] += b[i % b.size()];
        sum[i % b.size()] += before[i];
      }
      enqueue(rank.stream, BiasBackward<T>{.dy = y, .dbias = dbias, .write = write});
      EXPECT_LT(difference(dbias.values(), sum), R::sums_tolerance(c.rows));
      enqueue(rank.stream, AddBias<T>{.bias = bias, .y = y});
      EXPECT_LT(difference(y.values(), expected), R::template tolerance<T>);
      EXPECT_TRUE(y.gaps_untouched());
      EXPECT_EQ(rank.arena.used(), 0);
    }
}

struct ProductSizes {
  std::int64_t m, n, k;
};

/// Checks products for all transposes, strides and writes.
template <class A, class C, class R>
void expect_products(R& rank, std::initializer_list<ProductSizes> list) {
  for (const ProductSizes& s : list)
    for (int flags = 0; flags < 16; ++flags) {
      SCOPED_TRACE(message(s.m, " x ", s.n, " x ", s.k, ", flags ", flags));
      const bool ta = flags & 1, tb = flags & 2, accumulate = flags & 4;
      const std::int64_t gap = flags & 8 ? 9 : 0;
      const Held<R, A> a(rank, Matrix<A>::random(1, ta ? s.k : s.m, ta ? s.m : s.k, gap));
      const Held<R, A> b(rank, Matrix<A>::random(2, tb ? s.n : s.k, tb ? s.k : s.n, 2 * gap));
      Held<R, C> c(rank, accumulate ? Matrix<C>::random(3, s.m, s.n, 3 * gap) : Matrix<C>(s.m, s.n, 3 * gap));
      Values expected = product_reference(a.values(), ta, b.values(), tb, static_cast<std::size_t>(s.m),
                                          static_cast<std::size_t>(s.n), static_cast<std::size_t>(s.k));
      if (accumulate) expected = plus(std::move(expected), c.values());
      enqueue(
          rank.stream,
          Matmul<A, C>{.a = {a, ta}, .b = {b, tb}, .c = c, .write = accumulate ? Write::accumulate : Write::overwrite});
      EXPECT_LT(difference(c.values(), expected), R::template tolerance<C>);
      EXPECT_TRUE(c.gaps_untouched());
    }
  EXPECT_EQ(rank.arena.used(), 0);
}

}  // namespace fsdp::device::reference
