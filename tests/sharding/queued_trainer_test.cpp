// SPDX-License-Identifier: Apache-2.0
// The trainer on an asynchronous device, which reads what came of a step when the next one is on its way.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tessera/fsdp/testing/queued/queue.hpp>

#include <support/stacks/trainers.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {
namespace {

train::TrainOptions options_of(const TemporaryFolder& folder, const std::string& name) {
  train::TrainOptions options;
  options.data = {folder.path() / "data.txt"};
  options.model.values = {{"hidden", "16"},  {"layers", "2"},   {"heads", "2"},
                          {"kv-heads", "1"}, {"head-dim", "8"}, {"intermediate", "24"}};
  options.steps = 7;
  options.seq_len = 16;
  options.batch_size = 4;
  options.validation_fraction = 0.1;
  options.validation_every = 3;
  options.checkpoint_every = 3;
  options.checkpoint_dir = folder.path() / name;
  options.metrics = folder.path() / (name + ".jsonl");
  options.launch.ranks = 2;
  options.launch.threads = 1;
  return options;
}

/// Some steps overflow, and the loss scale falls.
void overflow(train::TrainOptions& options) {
  options.clip = 0;
  options.lr = 300;
  options.units.frozen = {"*layers*"};
  options.loss_scale = "dynamic:1267650600228229401496703205376";
}

/// The metrics file's lines, without what depends on time, the run's name and the device's memory.
std::vector<nlohmann::json> lines(const train::TrainOptions& options) {
  std::ifstream file(*options.metrics);
  std::vector<nlohmann::json> list;
  for (std::string line; std::getline(file, line);) {
    nlohmann::json object = nlohmann::json::parse(line);
    for (const char* key : {"peak_bytes", "tokens_per_second", "step_seconds", "tflops", "mfu", "mfu_peak", "seconds",
                            "first_step_seconds", "collective_seconds", "straggler", "checkpoint"})
      object.erase(key);
    if (object.value("event", "") == "summary") object.erase("traffic");  // ranks agree on paths, and sample
    list.push_back(object);
  }
  return list;
}

class QueuedTrainer : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i) + '\n';
    folder.write("data.txt", text);
    ::testing::internal::CaptureStdout();
  }
  void TearDown() override { ::testing::internal::GetCapturedStdout(); }
  TemporaryFolder folder;
};

TEST_F(QueuedTrainer, WritesTheMetricsOfTheCpuAStepLater) {
  for (const char* clip : {"off", "on"}) {
    train::TrainOptions cpu = options_of(folder, std::string("cpu-") + clip);
    train::TrainOptions queued = options_of(folder, std::string("queued-") + clip);
    cpu.clip = queued.clip = clip == std::string("on") ? 0.5 : 0;
    cpu.grad_accum = queued.grad_accum = 2;
    train_on_cpu(cpu);
    EXPECT_EQ(train_queued(queued), std::vector<std::string>());
    EXPECT_EQ(lines(queued), lines(cpu));
    EXPECT_EQ(lines(cpu).size(), 1u + 7 + 3 + 1);
  }
}

TEST_F(QueuedTrainer, WritesTheSameMetricsWithGraphs) {
  for (const bool overflows : {false, true}) {
    train::TrainOptions queued = options_of(folder, overflows ? "queued-overflows" : "queued");
    queued.launch.ranks = 1;
    if (overflows) overflow(queued);
    train::TrainOptions graphs = queued;
    graphs.metrics = folder.path() / "graphs.jsonl";
    *graphs.checkpoint_dir += "-graphs";
    graphs.cuda_graphs = true;
    train_queued(queued);
    std::filesystem::remove(*graphs.metrics);
    EXPECT_EQ(train_queued(graphs), std::vector<std::string>());
    EXPECT_EQ(lines(graphs), lines(queued));
  }
}

TEST_F(QueuedTrainer, WritesTheCpusSamplesWhichChangeNothingOfTheRun) {
  for (const int ranks : {1, 2}) {
    const auto with_samples = [&](const std::string& name) {
      train::TrainOptions options = options_of(folder, name + std::to_string(ranks));
      options.launch.ranks = ranks;
      options.sample_prompt = "line 1";
      options.sample_tokens = 7;
      return options;
    };
    train::TrainOptions plain = with_samples("plain"), graphs = with_samples("graphs");
    const train::TrainOptions cpu = with_samples("cpu"), queued = with_samples("queued");
    plain.sample_prompt.reset();
    graphs.cuda_graphs = ranks == 1;  // hosts take part in its collectives
    train_on_cpu(cpu);
    for (const train::TrainOptions& options : {plain, queued, graphs})
      EXPECT_EQ(train_queued(options), std::vector<std::string>());
    EXPECT_EQ(lines(queued), lines(cpu));
    EXPECT_EQ(lines(graphs), lines(cpu));
    std::vector<nlohmann::json> rest = lines(queued);
    EXPECT_EQ(std::erase_if(rest, [](const auto& line) { return line.value("event", "") == "sample"; }), 3u);
    EXPECT_EQ(rest, lines(plain));
  }
}

TEST_F(QueuedTrainer, GoesOnWhereItStopped) {
  train::TrainOptions whole = options_of(folder, "whole"), rest = options_of(folder, "rest");
  train_queued(whole);
  rest.resume = folder.path() / "whole" / "step-00000003";
  train_queued(rest);
  auto expected = lines(whole);
  expected.erase(expected.begin() + 1, expected.begin() + 5);  // three steps and a validation
  auto found = lines(rest);
  expected.front() = found.front();
  EXPECT_EQ(found, expected);
}

/// Queues take a millisecond for each work, beside which the pauses of a busy machine are short, and hold few.
struct SlowQueues {
  SlowQueues() { testing::WorkQueue::slow_down(std::chrono::milliseconds(1), 16); }
  SlowQueues(const SlowQueues&) = delete;
  ~SlowQueues() { testing::WorkQueue::slow_down({}, 0); }
};

/// The device has room for a small part of a step, so that the host enqueues as fast as the device computes.
TEST_F(QueuedTrainer, TheTimeOfTheLastStepIsThatOfTheOthers) {
  train::TrainOptions options = options_of(folder, "slow");
  options.launch.ranks = 1;
  options.steps = 5;
  options.validation_every = options.checkpoint_every = 0;
  options.checkpoint_dir.reset();
  {
    const SlowQueues slow;
    train_queued(options);
  }
  std::vector<double> seconds;
  std::ifstream file(*options.metrics);
  nlohmann::json summary;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json object = nlohmann::json::parse(line);
    if (!object.contains("event")) seconds.push_back(object["step_seconds"]);
    if (object.value("event", "") == "summary") summary = object;
  }
  ASSERT_EQ(seconds.size(), 5u);
  const double usual = *std::min_element(seconds.begin() + 1, seconds.begin() + 4);
  EXPECT_GT(seconds[4], 0.4 * usual) << "16 of a step's works would be less than a tenth";
  EXPECT_GT(summary.at("first_step_seconds"), 0.4 * usual);
  EXPECT_LT(summary.at("first_step_seconds"), summary.at("seconds").get<double>() - 3 * usual);
}

TEST_F(QueuedTrainer, SkipsTheStepsThatOverflowBeforeTheHostKnows) {
  train::TrainOptions options = options_of(folder, "scaled");
  overflow(options);
  train_queued(options);
  std::vector<int> skipped, halvings;
  for (const auto& line : lines(options)) {
    if (!line.contains("loss_scale")) continue;
    halvings.push_back(100 - std::ilogb(line["loss_scale"].get<double>()));
    if (line.contains("skipped")) skipped.push_back(line["step"]);
  }
  EXPECT_EQ(skipped, (std::vector{3, 4, 5, 6, 7}));
  // Step 5 was on its way before 4 was known; validations wait for 3 and for 6.
  EXPECT_EQ(halvings, (std::vector{0, 0, 0, 1, 1, 2, 3}));
}

TEST_F(QueuedTrainer, StopsWhereALossIsNoNumber) {
  train::TrainOptions options = options_of(folder, "broken");
  options.lr = 1e30;
  EXPECT_THROW(train_queued(options), Error);
}

}  // namespace
}  // namespace fsdp::test
