// SPDX-License-Identifier: Apache-2.0
// The trainer on a model without tokens, with a source of its own: it learns, saves, and goes on to the bit.
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tessera/comm/threads.hpp>
#include <tessera/trainer/data/text_source.hpp>

#include <support/stacks/series_trainer.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::train {
namespace {

using Comm = comm::Threads<>;
static_assert(!data::Source<int> && data::Source<data::TextSource>);

/// The lines of the run's metrics.
std::vector<nlohmann::json> train_series(TrainOptions options, const std::filesystem::path& metrics) {
  options.metrics = metrics.string();
  Comm::run(2, {}, [&](Comm& communicator) {
    const test::Forgetful source{{.length = 12, .windows = 44, .held_out = 4}};
    test::series_trainer(communicator, options, source, {}, {.weight_decay = 0})();
  });
  std::vector<nlohmann::json> lines;
  std::istringstream text(test::content_of(metrics));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(Trainer, TrainsSavesAndResumesAModelThatItKnowsNothingOf) {
  const test::TemporaryFolder folder;
  TrainOptions options{.steps = 40, .seq_len = 12, .batch_size = 8, .lr = 2e-2};
  options.checkpoint_dir = (folder.path() / "checkpoints").string();
  options.checkpoint_every = 20;
  ::testing::internal::CaptureStdout();
  const auto whole = train_series(options, folder.path() / "whole.jsonl");
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(said.find("held-out loss "), std::string::npos);
  for (const char* of_text : {"nats", "tok"}) EXPECT_EQ(said.find(of_text), std::string::npos) << said;
  EXPECT_NE(said.find(" points/s  peak "), std::string::npos) << said;
  EXPECT_NE(said.find("trained 40 steps, 3840 points in "), std::string::npos) << said;
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
  EXPECT_NE(said.find("\n  world     reduce_scatter "), std::string::npos) << said;
  ASSERT_EQ(resumed[1].at("step"), 21);
  for (std::size_t step = 21; step <= 40; ++step)
    EXPECT_EQ(resumed[step - 20].at("loss"), whole[step].at("loss")) << step;
  EXPECT_EQ(resumed.back().at("validation_loss"), whole.back().at("validation_loss"));
}

/// The lines of the metrics of a run in four pieces, and what it said.
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
  InPieces run{.said = ::testing::internal::GetCapturedStdout()};
  std::istringstream text(test::content_of(metrics));
  for (std::string line; std::getline(text, line);) run.lines.push_back(nlohmann::json::parse(line));
  return run;
}

/// Two runs' losses and norms of steps [from, to], and the held-out loss, are the same to the bit.
void expect_same(const InPieces& found, const InPieces& expected, std::size_t from, std::size_t to) {
  ASSERT_EQ(found.lines.at(1).at("step"), from);
  for (std::size_t step = from; step <= to; ++step)
    for (const char* key : {"loss", "grad_norm"})
      EXPECT_EQ(found.lines.at(step - from + 1).at(key), expected.lines.at(step).at(key)) << key << " of step " << step;
  EXPECT_EQ(found.lines.back().at("validation_loss"), expected.lines.back().at("validation_loss"));
}

TEST(Trainer, InPiecesHasTheSameBitsOnAnyNumberOfRanksAndGoesOnToTheBit) {
  const test::TemporaryFolder folder;
  TrainOptions options{.steps = 8, .seq_len = 12, .batch_size = 8, .lr = 2e-2};
  options.launch.threads = 1;
  options.checkpoint_dir = (folder.path() / "checkpoints").string();
  options.checkpoint_every = 4;
  const InPieces whole = train_in_pieces(2, options, folder.path() / "whole.jsonl");
  EXPECT_EQ(whole.lines.front().at("pieces"), 4);
  EXPECT_NE(whole.said.find("\nbatch     4 pieces on 2 ranks: 2 rounds\n"), std::string::npos) << whole.said;

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
    other.launch.threads = 0;  // those of the checkpoint
    const InPieces resumed = train_in_pieces(ranks, other, metrics("resumed"));
    expect_same(resumed, whole, 5, 8);
    EXPECT_EQ(resumed.lines.front().at("threads"), 1);
    EXPECT_NE(resumed.said.find("resumed: the number of ranks was 2, is " + std::to_string(ranks) +
                                "\nresumed: goes on to the bit\n"),
              std::string::npos)
        << resumed.said;
  }
}

TEST(Trainer, InPiecesRefusesOtherThreadsThanThoseOfTheCheckpoint) {
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

TEST(Trainer, RefusesSamplesOfAModelThatWritesNoText) {
  const TrainOptions options{.steps = 2, .seq_len = 12, .batch_size = 8, .sample_prompt = "x", .sample_tokens = 2};
  Comm::run(1, {}, [&](Comm& communicator) {
    const test::Forgetful source{{.length = 12, .windows = 44, .held_out = 4}};
    EXPECT_THROW(test::series_trainer(communicator, options, source), InputError);
  });
}

}  // namespace
}  // namespace fsdp::train
