// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of embedding and loss against float64, on the ranks of any device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference.hpp"

namespace fsdp::device::reference {

struct EmbeddingSizes {
  std::int64_t rows, columns;  // sizes of the table
  std::int64_t table_gap = 0, gap = 0;
};

/// Checks that rows of a table in W are gathered, rounded to T, and that gradients are added in token order, twice.
template <class T, class R, class W = T>
void expect_embedding(const Case& c, const EmbeddingSizes& s, const std::vector<std::int32_t>& tokens) {
  SCOPED_TRACE(message(c.text(), ", a table of ", s.rows, " x ", s.columns, ", gaps ", s.table_gap, " and ", s.gap));
  R rank(c);
  const Listed<R, std::int32_t> ids(rank, tokens);
  const Held<R, W> table(rank, Matrix<W>::random(1, s.rows, s.columns, s.table_gap));
  const Held<R, T> dy(rank, Matrix<T>::random(2, std::ssize(tokens), s.columns, s.gap));
  Held<R, T> out(rank, {std::ssize(tokens), s.columns, s.gap});
  Held<R, float> gradient(rank, Matrix<float>::random(3, s.rows, s.columns, s.table_gap));
  enqueue(rank.stream, Embedding<T, W>{.table = table, .tokens = ids, .out = out});
  const auto columns = static_cast<std::ptrdiff_t>(s.columns);
  const Values rows = table.values(), seed = dy.values();
  Values taken;
  std::vector<float> sums(rows.size());
  for (const Write write : {Write::overwrite, Write::accumulate}) {
    for (auto row = seed.begin(); const std::int32_t token : tokens) {
      if (write == Write::overwrite)
        taken.insert(taken.end(), &rows[0] + token * columns, &rows[0] + (token + 1) * columns);
      std::transform(row, row + columns, sums.begin() + token * columns, sums.begin() + token * columns,
                     [](double value, float sum) { return sum + static_cast<float>(value); });
      row += columns;
    }
    enqueue(rank.stream, EmbeddingBackward<T>{.tokens = ids, .dy = dy, .dtable = gradient, .write = write});
    EXPECT_EQ(gradient.values(), Values(sums.begin(), sums.end()));
  }
  EXPECT_EQ(out.values(), rounded_to<T>(taken));
  EXPECT_TRUE(out.gaps_untouched() && gradient.gaps_untouched());
}

inline std::vector<std::int32_t> some_targets(const Case& c) {
  std::vector<std::int32_t> targets(static_cast<std::size_t>(c.rows));
  std::ranges::generate(targets, [&, t = std::int64_t{0}]() mutable {
    return static_cast<std::int32_t>((t++ * 7 + c.columns / 2) % c.columns);
  });
  return targets;
}

/// Checks that the loss is added to the sum and that the gradient overwrites the logits.
template <class T, class R>
void expect_cross_entropy() {
  for (const Case& c : R::cases()) {
    SCOPED_TRACE(c.text());
    R rank(c);
    Held<R, T> logits(rank, Matrix<T>::random(1, c.rows, c.columns, c.gap, 9), c.offset);
    const Values before = logits.values();
    const CrossEntropyReference expected = cross_entropy_reference(before, some_targets(c), 0.5);
    const Listed<R, std::int32_t> targets(rank, some_targets(c));
    const Listed<R, double> loss(rank, {10}), loss_only(rank, {10});
    enqueue(rank.stream, CrossEntropyLoss<T>{.logits = logits, .targets = targets, .loss = loss_only});
    EXPECT_EQ(logits.values(), before);
    enqueue(rank.stream, CrossEntropy<T>{.logits = logits, .targets = targets, .scale = 0.5f, .loss = loss});
    EXPECT_LT(difference(logits.values(), expected.gradient), c.columns == 1 ? 1e-30 : R::template tolerance<T>);
    EXPECT_EQ(loss.back(), loss_only.back());
    EXPECT_NEAR(loss.back()[0] / (10 + expected.loss), 1, R::loss_tolerance);
    EXPECT_TRUE(logits.gaps_untouched());
  }
}

/// Checks cross-entropy in blocks of columns against whole rows.
template <class T, class R>
void expect_cross_entropy_in_blocks(std::int64_t most_blocks) {
  for (const Case& c : R::cases())
    for (const std::int64_t block : {std::int64_t{1}, std::int64_t{5}, std::int64_t{8}, c.columns / 2 + 1, c.columns}) {
      if (c.columns / block > most_blocks) continue;
      SCOPED_TRACE(message(c.text(), ", blocks of ", block));
      R rank(c);
      Held<R, T> logits(rank, Matrix<T>::random(1, c.rows, c.columns, c.gap, 9), c.offset);
      const CrossEntropyReference expected = cross_entropy_reference(logits.values(), some_targets(c), 0.5);
      const Listed<R, std::int32_t> targets(rank, some_targets(c));
      const Listed<R, double> loss(rank, {10}),
          memory(rank, std::vector<double>(static_cast<std::size_t>(3 * c.rows), NAN));
      const Tensor<double> state = memory.shaped({c.rows, 3});
      const auto for_blocks = [&](const auto& f) {
        for (std::int64_t begin = 0; begin < c.columns; begin += block)
          f(logits.view().slice_columns(begin, std::min(begin + block, c.columns)), begin);
      };
      for_blocks([&](Tensor<T> part, std::int64_t begin) {
        enqueue(rank.stream, CrossEntropyFold<T>{.logits = part, .first = begin, .targets = targets, .state = state});
      });
      enqueue(rank.stream, CrossEntropySum{.state = state, .loss = loss});
      for_blocks([&](Tensor<T> part, std::int64_t begin) {
        enqueue(rank.stream, CrossEntropyGradient<T>{
                                 .logits = part, .first = begin, .targets = targets, .scale = 0.5f, .state = state});
      });
      EXPECT_NEAR(loss.back()[0] / (10 + expected.loss), 1, R::loss_tolerance);
      EXPECT_LT(difference(logits.values(), expected.gradient), c.columns == 1 ? 1e-30 : R::template tolerance<T>);
      EXPECT_TRUE(logits.gaps_untouched());
    }
}

/// Checks that a non-finite logit at any position makes the loss NaN.
template <class T, class R>
void expect_cross_entropy_shows_what_is_not_finite() {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const std::int64_t at : {0, 16, 39}) {
      R rank(Case{});
      auto values = Matrix<T>::random(1, 1, 40);
      values.at(0, at) = T(bad);
      const Held<R, T> logits(rank, values);
      const Listed<R, std::int32_t> targets(rank, {3});
      const Listed<R, double> loss(rank, {0});
      enqueue(rank.stream, CrossEntropyLoss<T>{.logits = logits, .targets = targets, .loss = loss});
      EXPECT_TRUE(std::isnan(loss.back()[0])) << bad << " at " << at;
    }
}

}  // namespace fsdp::device::reference
