// SPDX-License-Identifier: Apache-2.0
// The trainer with digests and verification, on a model without tokens: a run that is verified is the same run, and one
// whose rank computes something else ends before anything is saved.
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/report/digest_file.hpp>

#include <support/stacks/series_trainer.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::train {
namespace {

using Comm = comm::Threads<>;
using test::Forgetful;

/// Trains on so many ranks. Returns what each rank's exception says; empty where it threw none.
std::vector<std::string> train_verified(int ranks, const TrainOptions& options, const Forgetful& source) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  ::testing::internal::CaptureStdout();
  Comm::run(ranks, {}, [&](Comm& communicator) {
    try {
      test::series_trainer(communicator, options, source, test::in_pieces<Zero2>())();
    } catch (const CorruptionError& error) {
      EXPECT_EQ(comm::exit_status_of(error), comm::ExitStatus::lost);
      said[static_cast<std::size_t>(communicator.rank())] = error.what();
    }
  });
  (void)::testing::internal::GetCapturedStdout();
  return said;
}

TrainOptions four_steps(const test::TemporaryFolder& folder, const std::string& name) {
  TrainOptions options{.steps = 4, .seq_len = 12, .batch_size = 8, .lr = 2e-2};
  options.launch.threads = 1;
  options.digests = folder.path() / (name + ".jsonl");
  return options;
}

TEST(Trainer, WritesTheSameDigestsOnAnyNumberOfRanksVerifiedOrNot) {
  const test::TemporaryFolder folder;
  const Forgetful source{{.length = 12, .windows = 44, .held_out = 4}};
  const TrainOptions usual = four_steps(folder, "usual");
  EXPECT_EQ(train_verified(2, usual, source), std::vector<std::string>(2));
  const report::DigestFile expected = report::read_digests(*usual.digests);
  EXPECT_EQ(expected.start.pieces, 4);
  EXPECT_EQ(expected.steps.size(), 4u);
  for (const int ranks : {1, 3, 5}) {
    TrainOptions options = four_steps(folder, std::to_string(ranks));
    options.verify_every = 1;
    EXPECT_EQ(train_verified(ranks, options, source), std::vector<std::string>(static_cast<std::size_t>(ranks)));
    EXPECT_EQ(report::read_digests(*options.digests).steps, expected.steps) << ranks;
  }
}

TEST(Trainer, EndsOnAllRanksBeforeItSavesWhereAVerificationFindsADifference) {
  const test::TemporaryFolder folder;
  TrainOptions options = four_steps(folder, "corrupt");
  options.checkpoint_dir = folder.path() / "checkpoints";
  options.checkpoint_every = 1;
  options.verify_every = 2;
  // The first window of step 2 is read for the step, and then again by the rank that verifies its piece.
  Forgetful source{{.length = 12, .windows = 44, .held_out = 4}};
  source.wrong_from = 2;
  data::Sampler sampler(options.seed, source.training(), options.batch_size);
  sampler.advance();
  source.sample = sampler.batch().front();
  const std::vector<std::string> said = train_verified(3, options, source);
  EXPECT_NE(said[0].find(" computed forward of "), std::string::npos) << said[0];
  EXPECT_NE(said[0].find(" of piece 0 of step 2 otherwise than another computation of the same"), std::string::npos);
  EXPECT_NE(said[0].find("verification: rank 2 on "), std::string::npos) << said[0];
  EXPECT_EQ(said, std::vector<std::string>(3, said[0]));
  std::vector<std::string> saved;
  for (const auto& entry : std::filesystem::directory_iterator(*options.checkpoint_dir))
    if (entry.is_directory()) saved.push_back(entry.path().filename().string());
  EXPECT_EQ(saved, std::vector<std::string>{"step-00000001"});
}

}  // namespace
}  // namespace fsdp::train
