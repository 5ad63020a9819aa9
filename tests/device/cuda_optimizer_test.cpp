// SPDX-License-Identifier: Apache-2.0
/// Optimizers and the operations that communicators enqueue, on Cuda, compared with float64.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "cuda_reference.hpp"
#include "steps.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

/// Calls check(case) at an aligned address and at one shifted by `offset` elements, for both variants of the kernels.
template <class Check>
void for_offsets(std::int64_t offset, const Check& check) {
  for (Case c : CudaRank::variants())
    for (const std::int64_t elements : {std::int64_t{0}, offset}) {
      c.offset = elements;
      check(c);
    }
}

TEST(CudaOptimizer, SgdMatchesTheReferenceAndRoundsModelWeightsOnce) {
  FSDP_NEEDS_DEVICE();
  for_types([]<class T>(T) {
    for (const std::int64_t count : {3, 1023})
      for_offsets(2, [&](const Case& c) { expect_sgd<T, CudaRank>(c, count); });
  });
}

TEST(CudaOptimizer, OperationsOfMuonMatchTheReference) {
  FSDP_NEEDS_DEVICE();
  for_types([]<class T>(T) {
    for (const Case& c : CudaRank::variants())
      for (const std::int64_t count : {3, 1023}) expect_muon<T, CudaRank>(c, count);
  });
}

TEST(CudaOptimizer, AdamWMatchesTheReferenceAndRoundsModelWeightsOnce) {
  FSDP_NEEDS_DEVICE();
  for_types([]<class T>(T) {
    for (const std::int64_t count : {1, 3, 31, 1023, 20011})
      for_offsets(2, [&](const Case& c) { expect_adamw<T, CudaRank>(c, count); });
  });
}

TEST(CudaOptimizer, ASkippedStepWritesOnlyModelWeights) {
  FSDP_NEEDS_DEVICE();
  for_types([]<class T>(T) {
    for (const Case& c : CudaRank::variants()) expect_skipped_steps<T, CudaRank>(c, 1023);
  });
}

TEST(CudaOptimizer, DecidesAStepFromTheSumsOfAllRanks) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  const StepDecision step = decided(rank, {.rules = {.clip = 0.5}}, {.lr = 0.01, .loss_scale = 8},
                                    {.sums = {1, 64, 2, 128, 4, 64}, .ranks = 3}, {.taken = 2});
  EXPECT_EQ(step.loss, 7);
  EXPECT_EQ(step.norm, 2);
  EXPECT_EQ(step.taken, 3);
  EXPECT_NEAR(step.gradient_scale, 0.5 / 2.000001 / 8, 1e-8);
  EXPECT_EQ(step.lr, 0.01);
  EXPECT_EQ(step.skipped + step.stopped, 0);
}

TEST(CudaOptimizer, SumOfSquaresAccumulatesInDouble) {
  FSDP_NEEDS_DEVICE();
  for (const std::int64_t count : {0, 1, 3, 257, 16384, 40001})
    for_offsets(1, [&](const Case& c) { expect_sum_of_squares<CudaRank>(c, count); });
}

TEST(CudaOptimizer, AddsAdditionalLossesByMicroBatch) {
  FSDP_NEEDS_DEVICE();
  CudaRank rank;
  const StepDecision step = decided(rank, {}, {.lr = 0.01}, {.sums = {1e16, 4, 0, -1e16, 1, 5, 0, 1}, .ranks = 2});
  EXPECT_EQ(step.loss, 1);
  EXPECT_EQ(step.norm, 3);
}

TEST(CudaCommunication, SumsInRankOrderRoundEachContributionOnce) {
  FSDP_NEEDS_DEVICE();
  for (const bool in_place : {false, true})
    for (const DType wire : {DType::f32, DType::bf16, DType::f16})
      for (const Write write : {Write::overwrite, Write::accumulate})
        for (const std::int64_t count : {1, 31, 1023, 4099}) {
          CudaRank rank;
          const auto rounded = [&](const Values& x) {
            return wire == DType::bf16 ? rounded_to<bf16>(x) : wire == DType::f16 ? rounded_to<f16>(x) : x;
          };
          const OnDevice<float> a(rank, Matrix<float>::random(1, 1, count)),
              b(rank, Matrix<float>::random(2, 1, count));
          const OnDevice<float> c(rank, Matrix<float>::random(3, 1, count)),
              sum(rank, Matrix<float>::random(4, 1, count));
          const OnDevice<float>& to = in_place ? b : sum;
          Values expected = rounded(a.values());
          const auto add = [&](const Values& x) { expected = rounded_to<float>(plus(std::move(expected), x)); };
          if (write == Write::accumulate) add(to.values());
          add(rounded(b.values()));
          add(rounded(c.values()));
          const auto bytes = [](const auto& x) { return reinterpret_cast<const std::byte*>(x.view().data()); };
          const std::vector<const std::byte*> parts = {bytes(a), bytes(b), bytes(c)};
          Cuda::sum_in_order(rank.stream, parts, DType::f32, wire, count, write, to.view().data());
          EXPECT_EQ(to.values(), expected);

          const OnDevice<bf16> stored(rank, {1, count});
          Cuda::round(rank.stream, a.view().data(), DType::bf16, count,
                      reinterpret_cast<std::byte*>(stored.view().data()));
          const std::vector<const std::byte*> one = {bytes(stored)};
          Cuda::sum_in_order(rank.stream, one, DType::bf16, DType::f32, count, Write::overwrite, c.view().data());
          EXPECT_EQ(stored.values(), rounded_to<bf16>(a.values()));
          EXPECT_EQ(c.values(), stored.values());
        }
}

}  // namespace
}  // namespace fsdp::device
