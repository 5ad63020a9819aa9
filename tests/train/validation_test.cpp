// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <data/numbered_source.hpp>
#include <support/stacks/llama_training.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/trainer/data/windows.hpp>
#include <tessera/trainer/run/validation.hpp>

namespace fsdp::train {
namespace {

using Comm = comm::Threads<>;

TEST(SumOfBatches, AddsBatchLossesRoundByRoundInRankOrder) {
  // The order matters: in double, adding 1 to 1e16 loses the 1, but adding it to 1e16 - 1e16 does not.
  const std::vector<double> in_order = {1e16, 1, -1e16, 1, 1};
  EXPECT_EQ(detail::sum_of_batches(in_order, 1, 5), 2);
  const std::vector<double> of_two_ranks = {1e16, -1e16, 1, 1, 1, 99};  // the last rank has no fifth batch
  EXPECT_EQ(detail::sum_of_batches(of_two_ranks, 2, 5), 2);
  const std::vector<double> of_five_ranks = in_order;
  EXPECT_EQ(detail::sum_of_batches(of_five_ranks, 5, 5), 2);
}

TEST(SumOfBatches, AddsTheLossesOfRanksOfAGroupInOrder) {
  // Three batches of two groups of two ranks: batch 2 is the second of the first group.
  const std::vector<double> of_four_ranks = {1e16, 1, -1e16, 1, 1, 99, 0, 99};
  EXPECT_EQ(detail::sum_of_batches(of_four_ranks, 2, 3, 2), 3);
  EXPECT_EQ(detail::sum_of_batches(of_four_ranks, 1, 2, 4), 1 + (1 + 1 + 99 + 99));
}

/// The mean loss of `samples` windows, `sequences` at a time.
MeanLoss loss_on(int ranks, std::int64_t samples, std::int64_t sequences) {
  MeanLoss found;
  Comm::run(ranks, {}, [&](Comm& communicator) {
    const test::NumberedSource source;
    test::LlamaTraining evaluation(
        communicator, {.sequences = sequences, .sequence_length = source.length, .threads = 1}, Purpose::evaluate);
    evaluation.initialize(3);
    const MeanLoss mean = evaluation.mean_loss(sequences, data::evenly_spread(0, source.training(), samples));
    if (communicator.rank() == 0) found = mean;
  });
  return found;
}

TEST(MeanLoss, IsBitIdenticalOnAnyNumberOfRanks) {
  for (const std::int64_t samples : {13, 1}) {
    const MeanLoss alone = loss_on(1, samples, 2);
    EXPECT_GT(alone.loss, 1);
    for (const int ranks : {2, 3, 4, 9}) {
      const MeanLoss found = loss_on(ranks, samples, 2);
      EXPECT_EQ(found.loss, alone.loss) << ranks << " ranks";
      EXPECT_EQ(found.tokens, alone.tokens);
    }
  }
}

TEST(EarlyStop, TriggersAfterPatienceLossesWithoutImprovement) {
  EarlyStop stop(2);
  EXPECT_TRUE(stop.improves(3, 1));
  EXPECT_FALSE(stop.improves(3, 2));  // an equal loss is not an improvement
  EXPECT_TRUE(stop.improves(2, 3));
  EXPECT_FALSE(stop.improves(4, 4));
  EXPECT_FALSE(stop.due());
  EXPECT_FALSE(stop.improves(2.5, 5));
  EXPECT_TRUE(stop.due());
  EXPECT_EQ(stop.best(), (checkpoint::BestLoss{.loss = 2, .step = 3, .worse = 2}));
}

TEST(EarlyStop, ResumesFromACheckpointWithoutCountingItsStepTwice) {
  EarlyStop stop(1);
  stop.restore(checkpoint::BestLoss{.loss = 2, .step = 3});
  EXPECT_FALSE(stop.improves(2, 3));
  EXPECT_FALSE(stop.due());
  EXPECT_FALSE(stop.improves(2, 4));
  EXPECT_TRUE(stop.due());
}

TEST(EarlyStop, IsOffWithoutPatience) {
  EarlyStop stop(0);
  stop.restore(checkpoint::BestLoss{.loss = 2, .step = 3});
  EXPECT_FALSE(stop.improves(1, 4));
  EXPECT_FALSE(stop.due());
  EXPECT_EQ(stop.best(), std::nullopt);
}

}  // namespace
}  // namespace fsdp::train
