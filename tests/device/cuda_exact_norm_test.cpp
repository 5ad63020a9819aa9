// SPDX-License-Identifier: Apache-2.0
/// The exact norm and the step decisions based on it, on Cuda, compared with 128-bit integers and with the CPU.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cuda_reference.hpp"
#include "exact_norm_reference.hpp"
#include "steps.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

/// Returns the decision of the device, and checks that the CPU decides the same.
StepDecision decided_as_cpu_does(CudaRank& rank, const DecideStep& op, const StepInputs& inputs,
                                 const GatheredSums& sums, const StepDecision& before = {}) {
  Rank host(1);
  const StepDecision found = decided(rank, op, inputs, sums, before), of_host = decided(host, op, inputs, sums, before);
  EXPECT_EQ(std::memcmp(&found, &of_host, sizeof found), 0) << found.norm << " and " << of_host.norm;
  return found;
}

/// Checks the largest magnitude, the sum of squares and the norm of a tensor that belongs to the first of two ranks.
void expect_exact(bool plain, const std::vector<float>& x, std::int64_t offset) {
  CudaRank rank(plain);
  auto host = Matrix<float>::numbers(std::ssize(x));
  host.set(x);
  const ExactNorm expected = exact_reference(x);
  const OnDevice<float> device(rank, host, offset);
  const NumbersOnDevice<std::int64_t> largest(rank, {0, 0});
  enqueue(rank.stream, LargestMagnitude{.x = device, .largest = largest.view().slice(0, 1)});
  EXPECT_EQ(largest.back(), (std::vector<std::int64_t>{expected.largest, 0}));

  const NumbersOnDevice<std::int64_t> exact(rank, {0, 0, 0xffffffff, 1});
  for (const int times : {1, 2}) {
    enqueue(rank.stream, FixedPointSquares{.x = device, .largest = largest, .sum = exact.view().slice(0, 2)});
    const std::int64_t low = times * expected.sum[0];
    EXPECT_EQ(exact.back(),
              (std::vector<std::int64_t>{low & 0xffffffff, times * expected.sum[1] + (low >> 32), 0xffffffff, 1}));
  }
  decided_as_cpu_does(rank, {}, {.lr = 0.01, .loss_scale = 3},
                      {.sums = std::vector<double>(6), .ranks = 2, .largest = largest.back(), .exact = exact.back()});
}

/// Two ranks with three norms: one of most gradients, and two of separate groups.
TEST(CudaOptimizer, DecidesByASeparateNormAsTheCpuDoes) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  GatheredSums sums{.sums = {1, 16, 0, 2, 1e4, 36, 4, 20, 0, 8, 0, 28}, .ranks = 2};
  for (const bool is_exact : {false, true}) {
    if (is_exact) {
      sums.largest = {0x3f800000, 0x43000000, 0x3c000000, 0x40000000, 0, 0x3c800000};
      sums.exact = {77, 1 << 20, 1, 2, 3, 1 << 25, 5, 6, 7, 8, 9, 10};
    }
    for (const std::int64_t norm : {0, 1, 2}) {
      const StepDecision found =
          decided_as_cpu_does(rank, {.rules = {.clip = 0.5}, .lr = 0.1, .norm = norm, .apart = 2},
                              {.lr = 0.01, .loss_scale = 2}, sums, {.taken = 2});
      EXPECT_EQ(found.taken, 3);
      EXPECT_EQ(found.lr, 0.01 * 0.1);
    }
  }
}

TEST(CudaOptimizer, FixedPointSquaresScaleByAColumnOfLargestMagnitudes) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  const OnDevice<float> x(rank, Matrix<float>::random_numbers(1, 257));
  const NumbersOnDevice<std::int64_t> apart(rank, {0, 0x3f800000}), all(rank, {7, 0, 0x42000000, 7, 0x3f800000, 0});
  const NumbersOnDevice<std::int64_t> sum(rank, {0, 0}), of_column(rank, {0, 0});
  enqueue(rank.stream, FixedPointSquares{.x = x, .largest = apart, .sum = sum});
  enqueue(rank.stream, FixedPointSquares{.x = x, .largest = all.shaped({2, 3}).slice_columns(1, 2), .sum = of_column});
  EXPECT_EQ(of_column.back(), sum.back());
  EXPECT_NE(sum.back(), (std::vector<std::int64_t>{0, 0}));
}

TEST(CudaOptimizer, ExactNormMatchesTheReference) {
  FSDP_NEEDS_DEVICE();
  for (const bool plain : {false, true})
    for (const std::int64_t count : {1, 3, 257, 16385, 40001})
      for (const std::int64_t offset : {0, 1})
        for (const auto& [words, x] : exact_cases(count)) {
          SCOPED_TRACE(words);
          if (count < 10000 || words.starts_with("mixed") || words.starts_with("ties")) expect_exact(plain, x, offset);
        }
}

TEST(CudaOptimizer, ExactNormPropagatesNonFiniteValues) {
  FSDP_NEEDS_DEVICE();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const bool plain : {false, true})
    for (const float bad : {infinity, -infinity, std::nanf("")}) {
      CudaRank rank(plain);
      auto x = Matrix<float>::random_numbers(1, 40001);
      x.at(0, 30000) = bad;
      const OnDevice<float> device(rank, x);
      const NumbersOnDevice<std::int64_t> largest(rank, {0}), exact(rank, {7, 8});
      enqueue(rank.stream, LargestMagnitude{.x = device, .largest = largest});
      enqueue(rank.stream, FixedPointSquares{.x = device, .largest = largest, .sum = exact});
      EXPECT_EQ(exact.back(), (std::vector<std::int64_t>{7, 8}));
      const StepDecision step =
          decided(rank, {}, {.lr = 0.01}, {.sums = {1, 1}, .largest = largest.back(), .exact = exact.back()});
      EXPECT_EQ(step.stopped, 1);
      if (std::isnan(bad))
        EXPECT_TRUE(std::isnan(step.norm));
      else
        EXPECT_EQ(step.norm, std::numeric_limits<double>::infinity());
    }
}

}  // namespace
}  // namespace fsdp::device
