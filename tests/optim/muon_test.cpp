// SPDX-License-Identifier: Apache-2.0
// Muon's steps of whole matrices and of the heads of a matrix, compared with float64.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/testing/optimizer_updates.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>

namespace fsdp::test {
namespace {

using Doubles = std::vector<double>;

/// Returns a b, or a^T b if `transposes`; b is [inner, columns].
Doubles product_of(const Doubles& a, const Doubles& b, std::int64_t inner, std::int64_t columns, bool transposes) {
  const std::int64_t rows = std::ssize(a) / inner;
  Doubles c(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < inner; ++k)
      for (std::int64_t j = 0; j < columns; ++j)
        c[static_cast<std::size_t>(i * columns + j)] +=
            a[static_cast<std::size_t>(transposes ? k * rows + i : i * inner + k)] *
            b[static_cast<std::size_t>(k * columns + j)];
  return c;
}

/// Returns Newton-Schulz of x [R, C] as (a + b A + c A^2) x with A = x x^T, whichever side is shorter.
Doubles orthogonalized(Doubles x, std::int64_t rows, std::int64_t iterations) {
  const std::int64_t columns = std::ssize(x) / rows;
  double squares = 0;
  for (const double value : x) squares += value * value;
  for (double& value : x) value /= std::sqrt(squares) + 1e-7;
  for (std::int64_t i = 0; i < iterations; ++i) {
    const auto times_gram = [&](const Doubles& y) {
      return product_of(x, product_of(x, y, rows, columns, true), columns, columns, false);
    };
    const Doubles y = times_gram(x), z = times_gram(y);
    for (std::size_t k = 0; k < x.size(); ++k) x[k] = 3.4445 * x[k] - 4.7750 * y[k] + 2.0315 * z[k];
  }
  return x;
}

/// A parameter, and the rows of the matrices that Muon per head makes of it.
struct HeadsCase {
  Parameter parameter;
  std::int64_t rows;
};

TEST(Muon, OrthogonalizesEachHeadAsInFloat64) {
  const HeadsCase cases[] = {{{.name = "wide heads", .shape = {24, 19}, .block = 8 * 19}, 8},
                             {{.name = "tall heads", .shape = {24, 5}, .block = 8 * 5}, 8},
                             {{.name = "no heads", .shape = {24, 19}}, 24},
                             {{.name = "blocks that cut rows", .shape = {6, 4}, .block = 6}, 6},
                             {{.name = "three axes", .shape = {6, 2, 4}, .role = Role::matrix, .block = 16}, 2}};
  for (const bool per_head : {false, true})
    for (const auto& [parameter, rows_per_head] : cases) {
      SCOPED_TRACE(parameter.name);
      const optim::Muon muon{.per_head = per_head};
      const std::int64_t rows = per_head ? rows_per_head : parameter.shape[0];
      const auto block = static_cast<std::size_t>(parameter.shape.numel() / parameter.shape[0] * rows);
      EXPECT_EQ(muon.block(parameter), block);
      testing::TestRank<device::Cpu> rank(2, testing::detail::update_arena_bytes);
      testing::detail::OptimizerPiece<float, optim::Muon> piece(muon, parameter);
      const double decay = parameter.decay_of(muon.adamw.weight_decay);
      const auto initial = piece.main();
      Doubles weights(initial.begin(), initial.end()), momentum(weights.size());
      const double longer = std::max<double>(static_cast<double>(rows), static_cast<double>(block) / rows);
      for (int taken = 1; taken <= 2; ++taken) {
        piece.set_gradient(taken);
        const auto gradient = piece.gradient();
        const device::StepDecision decision = testing::detail::decided(taken);
        piece.step(rank.stream, decision);
        for (std::size_t begin = 0; begin < weights.size(); begin += block) {
          Doubles direction(block);
          for (std::size_t i = 0; i < block; ++i) {
            const double scaled = static_cast<double>(decision.gradient_scale) * gradient[begin + i];
            momentum[begin + i] = muon.momentum * momentum[begin + i] + scaled;
            direction[i] = scaled + muon.momentum * momentum[begin + i];
          }
          direction = orthogonalized(direction, rows, muon.iterations);
          for (std::size_t i = 0; i < block; ++i)
            weights[begin + i] -= decision.lr * (decay * weights[begin + i] + 0.2 * std::sqrt(longer) * direction[i]);
        }
      }
      const auto found = piece.main();
      for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], weights[i], 2e-5) << i;
    }
}

}  // namespace
}  // namespace fsdp::test
