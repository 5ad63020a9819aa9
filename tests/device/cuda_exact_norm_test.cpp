// SPDX-License-Identifier: Apache-2.0
/// The exact norm, and steps that it decides, on Cuda against integers of 128 bits and against the CPU.
#include <cstring>
#include <limits>

#include "cuda_reference.hpp"
#include "exact_norm_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

/// The largest magnitude, the sum of squares and the norm of a tensor, as that of the first of two ranks.
void expect_exact(bool plain, const std::vector<float>& x, std::int64_t offset) {
  CudaRank rank(plain);
  Matrix<float> host(1, std::ssize(x));
  for (std::int64_t i = 0; i < std::ssize(x); ++i) host.at(0, i) = x[static_cast<std::size_t>(i)];
  const ExactNorm expected = exact_reference(x);
  const OnDevice<float> device(rank, host, offset);
  const NumbersOnDevice<std::int64_t> largest(rank, {0, 0});
  enqueue(rank.stream, LargestMagnitude{.x = device.vector_input(), .largest = largest.view().slice(0, 1)});
  EXPECT_EQ(largest.back(), (std::vector<std::int64_t>{expected.largest, 0}));

  const NumbersOnDevice<std::int64_t> exact(rank, {0, 0, 0xffffffff, 1});
  for (const int times : {1, 2}) {
    enqueue(rank.stream,
            FixedPointSquares{.x = device.vector_input(), .largest = largest.view(), .sum = exact.view().slice(0, 2)});
    const std::int64_t low = times * expected.sum[0];
    EXPECT_EQ(exact.back(),
              (std::vector<std::int64_t>{low & 0xffffffff, times * expected.sum[1] + (low >> 32), 0xffffffff, 1}));
  }

  const std::vector<StepInputs> host_inputs = {{.lr = 0.01, .loss_scale = 3}};
  const std::vector<double> host_sums(6);
  const NumbersOnDevice<StepInputs> inputs(rank, host_inputs);
  const NumbersOnDevice<double> sums(rank, host_sums);
  const NumbersOnDevice<StepDecision> decision(rank, {StepDecision()});
  enqueue(rank.stream, DecideStep{.inputs = inputs.view(),
                                  .sums = Tensor<const double>(sums.view().data(), {2, 3}),
                                  .largest = largest.view(),
                                  .exact = Tensor<const std::int64_t>(exact.view().data(), {2, 2}),
                                  .step = decision.view()});
  const std::vector<std::int64_t> host_largest = largest.back(), host_exact = exact.back();
  StepDecision of_host;
  Rank host_rank(1);
  enqueue(host_rank.stream, DecideStep{.inputs = {host_inputs.data(), {1}},
                                       .sums = {host_sums.data(), {2, 3}},
                                       .largest = {host_largest.data(), {2}},
                                       .exact = {host_exact.data(), {2, 2}},
                                       .step = {&of_host, {1}}});
  const double found = decision.back().front().norm;
  EXPECT_EQ(std::memcmp(&found, &of_host.norm, sizeof found), 0) << found << " and " << of_host.norm;
}

/// Three norms of two ranks: that of the rest, and two apart.
TEST(CudaOptimizer, DecidesByANormApartAsCpuDoes) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  Rank host_rank(1);
  const std::vector<StepInputs> host_inputs = {{.lr = 0.01, .loss_scale = 2}};
  const std::vector<double> host_sums = {1, 16, 0, 2, 1e4, 36, 4, 20, 0, 8, 0, 28};
  const std::vector<std::int64_t> host_largest = {0x3f800000, 0x43000000, 0x3c000000, 0x40000000, 0, 0x3c800000};
  const std::vector<std::int64_t> host_exact = {77, 1 << 20, 1, 2, 3, 1 << 25, 5, 6, 7, 8, 9, 10};
  const NumbersOnDevice<StepInputs> inputs(rank, host_inputs);
  const NumbersOnDevice<double> sums(rank, host_sums);
  const NumbersOnDevice<std::int64_t> largest(rank, host_largest), exact(rank, host_exact);
  for (const bool is_exact : {false, true})
    for (std::int64_t norm = 0; norm < 3; ++norm) {
      const NumbersOnDevice<StepDecision> decision(rank, {StepDecision{.taken = 2}});
      StepDecision of_host{.taken = 2};
      const auto decide = [&](auto& stream, const StepInputs* in, const double* numbers, const std::int64_t* most,
                              const std::int64_t* squares, Tensor<StepDecision> to) {
        DecideStep op{.rules = {.clip = 0.5}, .lr = 0.1, .norm = norm, .apart = 2, .inputs = {in, {1}}, .step = to};
        op.sums = {numbers, {2, 6}};
        if (is_exact) {
          op.largest = {most, {2, 3}};
          op.exact = {squares, {2, 6}};
        }
        enqueue(stream, op);
      };
      decide(rank.stream, inputs.view().data(), sums.view().data(), largest.view().data(), exact.view().data(),
             decision.view());
      decide(host_rank.stream, host_inputs.data(), host_sums.data(), host_largest.data(), host_exact.data(),
             {&of_host, {1}});
      const StepDecision found = decision.back().front();
      EXPECT_EQ(std::memcmp(&found, &of_host, sizeof found), 0) << found.norm << " and " << of_host.norm;
      EXPECT_EQ(found.taken, 3);
      EXPECT_EQ(found.lr, 0.01 * 0.1);
    }
}

TEST(CudaOptimizer, SquaresAreRelativeToAColumnOfLargestMagnitudes) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  const OnDevice<float> x(rank, Matrix<float>::random(1, 1, 257));
  const NumbersOnDevice<std::int64_t> apart(rank, {0, 0x3f800000}), all(rank, {7, 0, 0x42000000, 7, 0x3f800000, 0});
  const NumbersOnDevice<std::int64_t> sum(rank, {0, 0}), of_column(rank, {0, 0});
  enqueue(rank.stream, FixedPointSquares{.x = x.vector_input(), .largest = apart.view(), .sum = sum.view()});
  const auto column = Tensor<const std::int64_t>(all.view().data(), {2, 3}).slice_columns(1, 2);
  enqueue(rank.stream, FixedPointSquares{.x = x.vector_input(), .largest = column, .sum = of_column.view()});
  EXPECT_EQ(of_column.back(), sum.back());
  EXPECT_NE(sum.back(), (std::vector<std::int64_t>{0, 0}));
}

TEST(CudaOptimizer, ExactNormIsTheReferences) {
  FSDP_NEEDS_DEVICE();
  for (const bool plain : {false, true})
    for (const std::int64_t count : {1, 3, 257, 16385, 40001})
      for (const std::int64_t offset : {0, 1})
        for (const auto& [words, x] : exact_cases(count)) {
          SCOPED_TRACE(words);
          if (count < 10000 || words.starts_with("mixed") || words.starts_with("ties")) expect_exact(plain, x, offset);
        }
}

TEST(CudaOptimizer, ExactNormShowsWhatIsNotFinite) {
  FSDP_NEEDS_DEVICE();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const bool plain : {false, true})
    for (const float bad : {infinity, -infinity, std::nanf("")}) {
      CudaRank rank(plain);
      auto x = Matrix<float>::random(1, 1, 40001);
      x.at(0, 30000) = bad;
      const OnDevice<float> device(rank, x);
      const NumbersOnDevice<std::int64_t> largest(rank, {0}), exact(rank, {7, 8});
      const NumbersOnDevice<StepInputs> inputs(rank, {{.lr = 0.01}});
      const NumbersOnDevice<double> sums(rank, {1, 1});
      const NumbersOnDevice<StepDecision> decision(rank, {StepDecision()});
      enqueue(rank.stream, LargestMagnitude{.x = device.vector_input(), .largest = largest.view()});
      enqueue(rank.stream,
              FixedPointSquares{.x = device.vector_input(), .largest = largest.view(), .sum = exact.view()});
      enqueue(rank.stream, DecideStep{.inputs = inputs.view(),
                                      .sums = Tensor<const double>(sums.view().data(), {1, 2}),
                                      .largest = largest.view(),
                                      .exact = Tensor<const std::int64_t>(exact.view().data(), {1, 2}),
                                      .step = decision.view()});
      EXPECT_EQ(exact.back(), (std::vector<std::int64_t>{7, 8}));
      const StepDecision step = decision.back().front();
      EXPECT_EQ(step.stopped, 1);
      if (std::isnan(bad))
        EXPECT_TRUE(std::isnan(step.norm));
      else
        EXPECT_EQ(step.norm, std::numeric_limits<double>::infinity());
    }
}

}  // namespace
}  // namespace fsdp::device
