// SPDX-License-Identifier: Apache-2.0
// The trainer with a model without tokens and a user-defined source: it learns, saves, and resumes bit-identically.
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <support/json_lines.hpp>
#include <support/stacks/series_trainer.hpp>
#include <support/temporary_folder.hpp>
#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/data/text_source.hpp>
#include <tessera/trainer/report/digest_file.hpp>

namespace fsdp::train {
namespace {

using Comm = comm::Threads<>;
static_assert(!data::Source<int> && data::Source<data::TextSource>);

/// The lines of a run's metrics file.
std::vector<nlohmann::json> train_series(TrainOptions options, const std::filesystem::path& metrics) {
  options.metrics = metrics.string();
  Comm::run(2, {}, [&](Comm& communicator) {
    const test::Forgetful source{{.length = 12, .windows = 44, .held_out = 4}};
    test::series_trainer(communicator, options, source, {}, {.weight_decay = 0})();
  });
  return test::json_lines(metrics);
}

TEST(Trainer, TrainsSavesAndResumesAUserDefinedModel) {
  const test::TemporaryFolder folder;
  TrainOptions options{.steps = 40, .seq_len = 12, .batch_size = 8, .lr = 2e-2};
  options.checkpoint_dir = (folder.path() / "checkpoints").string();
  options.checkpoint_every = 20;
  ::testing::internal::CaptureStdout();
  const auto whole = train_series(options, folder.path() / "whole.jsonl");
  const std::string said = ::testing::internal::GetCapturedStdout();
  test::expect_parts(said, {"held-out loss "});
  for (const char* of_text : {"nats", "tok"}) EXPECT_EQ(said.find(of_text), std::string::npos) << said;
  test::expect_parts(said, {" points/s  peak ", "trained 40 steps, 3840 points in "});
  options.resume = *options.checkpoint_dir + "/step-00000020";
  options.checkpoint_dir.reset();
  const auto resumed = train_series(options, folder.path() / "resumed.jsonl");

  EXPECT_EQ(whole.front().at("sizes").at("series"), 4);
  EXPECT_EQ(whole.front().at("sizes").size(), 5u);
  EXPECT_EQ(whole.front().at("optimizer").at("name"), "adamw");
  EXPECT_EQ(whole.front().at("optimizer").at("weight-decay"), 0);
  EXPECT_LT(whole[40].at("loss"), 0.2 * whole[1].at("loss").get<double>());
  EXPECT_LT(whole.back().at("validation_loss"), 0.2 * whole[1].at("loss").get<double>());
  const std::int64_t bytes = whole.front().at("parameters").get<std::int64_t>() * std::int64_t{sizeof(float)};
  const std::int64_t units = whole.front().at("sizes").at("layers").get<std::int64_t>() + 2;
  for (std::size_t step = 1; step <= 40; ++step) {
    const nlohmann::json& traffic = whole[step].at("traffic");
    EXPECT_EQ(traffic, whole[1].at("traffic")) << step;
    EXPECT_EQ(traffic.at("world").at("reduce_scatter"), (nlohmann::json{{"calls", units}, {"bytes", bytes}}));
  }
  EXPECT_EQ(whole.back().at("traffic").at("world").at("reduce_scatter"),
            (nlohmann::json{{"calls", 40 * units}, {"bytes", 40 * bytes}}));
  test::expect_parts(said, {"\n  world     reduce_scatter "});
  ASSERT_EQ(resumed[1].at("step"), 21);
  for (std::size_t step = 21; step <= 40; ++step)
    EXPECT_EQ(resumed[step - 20].at("loss"), whole[step].at("loss")) << step;
  EXPECT_EQ(resumed.back().at("validation_loss"), whole.back().at("validation_loss"));
}

/// The metrics and the output of a run in four pieces.
struct InPieces {
  std::vector<nlohmann::json> lines = {};
  std::string said = {};
};
InPieces train_in_pieces(int ranks, TrainOptions options, const std::filesystem::path& metrics) {
  options.metrics = metrics.string();
  ::testing::internal::CaptureStdout();
  Comm::run(ranks, {}, [&](Comm& communicator) {
    const test::Forgetful source{{.length = 12, .windows = 44, .held_out = 5}};
    test::series_trainer(communicator, options, source, test::in_pieces(), {.weight_decay = 0.1})();
  });
  return {.lines = test::json_lines(metrics), .said = ::testing::internal::GetCapturedStdout()};
}

/// Expects that the losses and norms of steps [from, to] and the validation loss of two runs are bit-identical.
void expect_same(const InPieces& found, const InPieces& expected, std::size_t from, std::size_t to) {
  ASSERT_EQ(found.lines.at(1).at("step"), from);
  for (std::size_t step = from; step <= to; ++step)
    for (const char* key : {"loss", "grad_norm"})
      EXPECT_EQ(found.lines.at(step - from + 1).at(key), expected.lines.at(step).at(key)) << key << " of step " << step;
  EXPECT_EQ(found.lines.back().at("validation_loss"), expected.lines.back().at("validation_loss"));
}

TEST(Trainer, InPiecesIsBitIdenticalOnAnyNumberOfRanksAndAfterResume) {
  const test::TemporaryFolder folder;
  TrainOptions options{.steps = 8, .seq_len = 12, .batch_size = 8, .lr = 2e-2};
  options.launch.threads = 1;
  options.checkpoint_dir = (folder.path() / "checkpoints").string();
  options.checkpoint_every = 4;
  const InPieces whole = train_in_pieces(2, options, folder.path() / "whole.jsonl");
  EXPECT_EQ(whole.lines.front().at("pieces"), 4);
  test::expect_parts(whole.said, {"\nbatch     4 pieces on 2 ranks: 2 rounds\n"});

  options.resume = *options.checkpoint_dir + "/step-00000004";
  options.checkpoint_dir.reset();
  options.checkpoint_every = 0;
  TrainOptions anew = options;
  anew.resume.reset();
  for (const int ranks : {1, 3, 5}) {
    const auto metrics = [&](const char* name) { return folder.path() / (name + std::to_string(ranks)); };
    const InPieces begun = train_in_pieces(ranks, anew, metrics("anew"));
    expect_same(begun, whole, 1, 8);
    EXPECT_EQ(begun.lines.at(1).contains("traffic"), ranks > 1);

    TrainOptions other = options;
    other.launch.threads = 0;  // uses the threads of the checkpoint
    const InPieces resumed = train_in_pieces(ranks, other, metrics("resumed"));
    expect_same(resumed, whole, 5, 8);
    EXPECT_EQ(resumed.lines.front().at("threads"), 1);
    test::expect_parts(resumed.said, {"resumed: the number of ranks was 2, is " + std::to_string(ranks) +
                                      "\nresumed: goes on to the bit\n"});
  }
}

TEST(Trainer, InPiecesRefusesAnotherNumberOfThreadsThanTheCheckpoint) {
  const test::TemporaryFolder folder;
  TrainOptions options{.steps = 2, .seq_len = 12, .batch_size = 8};
  options.launch.threads = 1;
  options.checkpoint_dir = (folder.path() / "checkpoints").string();
  (void)train_in_pieces(2, options, folder.path() / "metrics.jsonl");
  options.resume = "auto";
  options.steps = 4;
  options.launch.threads = 2;
  ::testing::internal::CaptureStdout();
  Comm::run(2, {}, [&](Comm& communicator) {
    const test::Forgetful source{{.length = 12, .windows = 44, .held_out = 5}};
    const auto run = test::series_trainer(communicator, options, source, test::in_pieces(), {.weight_decay = 0.1});
    EXPECT_INPUT_ERROR(run(),
                       "each rank had 1 thread, and has 2, which changes the last bits; resume with "
                       "--threads 1, or leave the pieces out (:pieces=4 of --sharding)");
  });
  (void)::testing::internal::GetCapturedStdout();
}

TEST(Trainer, RefusesTextSamplesForAModelWithoutTokens) {
  const TrainOptions options{.steps = 2, .seq_len = 12, .batch_size = 8, .sample_prompt = "x", .sample_tokens = 2};
  Comm::run(1, {}, [&](Comm& communicator) {
    const test::Forgetful source{{.length = 12, .windows = 44, .held_out = 4}};
    EXPECT_THROW(test::series_trainer(communicator, options, source), InputError);
  });
}

// The trainer with digests and verification, with a model without tokens: verification does not change a run, and a run
// with a rank that computes incorrectly ends before anything is saved.

using test::Forgetful;

/// Trains on `ranks` ranks. Returns the exception message of each rank; empty without an exception.
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

TEST(Trainer, DigestsDoNotDependOnRanksOrVerification) {
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

TEST(Trainer, AFailedVerificationStopsAllRanksBeforeTheNextSave) {
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
  test::expect_parts(said[0],
                     {" computed forward of ", " of piece 0 of step 2 otherwise than another computation of the same",
                      "verification: rank 2 on "});
  EXPECT_EQ(said, std::vector<std::string>(3, said[0]));
  std::vector<std::string> saved;
  for (const auto& entry : std::filesystem::directory_iterator(*options.checkpoint_dir))
    if (entry.is_directory()) saved.push_back(entry.path().filename().string());
  EXPECT_EQ(saved, std::vector<std::string>{"step-00000001"});
}

}  // namespace
}  // namespace fsdp::train
