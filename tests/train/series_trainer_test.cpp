// SPDX-License-Identifier: Apache-2.0
// The trainer on a model without tokens, with a source of its own: it learns, saves, and goes on to the bit.
#include <tessera/trainer/run/trainer.hpp>

#include <sstream>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <examples/06_own_model/model.hpp>
#include <examples/06_own_model/source.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/trainer/data/text_source.hpp>

#include <support/temporary_folder.hpp>

namespace fsdp::train {
namespace {

using Comm = comm::Threads<>;
using Series = forecaster::Forecaster<Stack<FullyShard<>, Comm, Fp32, tiling::RunTime>>;
static_assert(!data::Source<int> && data::Source<data::TextSource>);

/// The lines of the run's metrics.
std::vector<nlohmann::json> train_series(TrainOptions options, const std::filesystem::path& metrics) {
  options.metrics = metrics.string();
  Comm::run(2, {}, [&](Comm& communicator) {
    const Series model(forecaster::Config{.hidden = 16, .intermediate = 24});
    const forecaster::Seasons source{.length = 12, .windows = 44, .held_out = 4};
    return Trainer<Series, forecaster::Seasons, optim::AdamW>(communicator, options, model, source, {}, {},
                                                              {.weight_decay = 0})
        .run();
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
  ASSERT_EQ(resumed[1].at("step"), 21);
  for (std::size_t step = 21; step <= 40; ++step)
    EXPECT_EQ(resumed[step - 20].at("loss"), whole[step].at("loss")) << step;
  EXPECT_EQ(resumed.back().at("validation_loss"), whole.back().at("validation_loss"));
}

TEST(Trainer, RefusesSamplesOfAModelThatWritesNoText) {
  const TrainOptions options{.steps = 2, .seq_len = 12, .batch_size = 8, .sample_prompt = "x", .sample_tokens = 2};
  Comm::run(1, {}, [&](Comm& communicator) {
    const Series model(forecaster::Config{.hidden = 16, .intermediate = 24});
    const forecaster::Seasons source{.length = 12, .windows = 44, .held_out = 4};
    using SeriesTrainer = Trainer<Series, forecaster::Seasons, optim::AdamW>;
    EXPECT_THROW(SeriesTrainer(communicator, options, model, source, {}, {}), InputError);
  });
}

}  // namespace
}  // namespace fsdp::train
