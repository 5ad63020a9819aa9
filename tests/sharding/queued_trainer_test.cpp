// SPDX-License-Identifier: Apache-2.0
// The trainer on an asynchronous device, which reads the results of a step while the next one is in flight.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tessera/fsdp/testing/queued/queue.hpp>

#include <support/json_lines.hpp>
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

/// Options with which some steps overflow and the loss scale decreases.
void overflow(train::TrainOptions& options) {
  options.clip = 0;
  options.lr = 300;
  options.units.frozen = {"*layers*"};
  options.loss_scale = "dynamic:1267650600228229401496703205376";
}

/// The lines of the metrics file without values that depend on time, checkpoint path or device memory.
std::vector<nlohmann::json> lines(const train::TrainOptions& options) {
  std::vector<nlohmann::json> list = json_lines(*options.metrics);
  for (nlohmann::json& object : list) {
    for (const char* key : {"peak_bytes", "tokens_per_second", "step_seconds", "tflops", "mfu", "mfu_peak", "seconds",
                            "first_step_seconds", "collective_seconds", "straggler", "checkpoint"})
      object.erase(key);
    if (object.value("event", "") == "summary") object.erase("traffic");  // includes paths and samples
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

TEST_F(QueuedTrainer, WritesTheMetricsOfTheCpuOneStepLater) {
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
    queued.cuda_graphs = train::CudaGraphs::off;
    if (overflows) overflow(queued);
    train::TrainOptions graphs = queued;
    graphs.metrics = folder.path() / "graphs.jsonl";
    *graphs.checkpoint_dir += "-graphs";
    graphs.cuda_graphs = train::CudaGraphs::on;
    train_queued(queued);
    std::filesystem::remove(*graphs.metrics);
    EXPECT_EQ(train_queued(graphs), std::vector<std::string>());
    EXPECT_EQ(lines(graphs), lines(queued));
  }
}

TEST_F(QueuedTrainer, WritesTheSamplesOfTheCpuWithoutAffectingTheRun) {
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
    if (ranks == 1) graphs.cuda_graphs = train::CudaGraphs::on;  // with several ranks, hosts take part in collectives
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

TEST_F(QueuedTrainer, ResumesFromACheckpoint) {
  train::TrainOptions whole = options_of(folder, "whole"), rest = options_of(folder, "rest");
  train_queued(whole);
  rest.resume = folder.path() / "whole" / "step-00000003";
  train_queued(rest);
  auto expected = lines(whole);
  expected.erase(expected.begin() + 1, expected.begin() + 5);  // removes three steps and a validation
  auto found = lines(rest);
  expected.front() = found.front();
  EXPECT_EQ(found, expected);
}

/// Queues with a small capacity and one millisecond per operation, which is long compared with the pauses of a busy
/// machine.
struct SlowQueues {
  SlowQueues() { testing::WorkQueue::slow_down(std::chrono::milliseconds(1), 16); }
  SlowQueues(const SlowQueues&) = delete;
  ~SlowQueues() { testing::WorkQueue::slow_down({}, 0); }
};

/// The queue holds only a small part of a step, so that the host enqueues as fast as the device computes.
TEST_F(QueuedTrainer, TheLastStepTakesAsLongAsTheOthers) {
  train::TrainOptions options = options_of(folder, "slow");
  options.launch.ranks = 1;
  options.cuda_graphs = train::CudaGraphs::off;
  options.steps = 5;
  options.validation_every = options.checkpoint_every = 0;
  options.checkpoint_dir.reset();
  {
    const SlowQueues slow;
    train_queued(options);
  }
  std::vector<double> seconds;
  nlohmann::json summary;
  for (const nlohmann::json& object : json_lines(*options.metrics)) {
    if (!object.contains("event")) seconds.push_back(object["step_seconds"]);
    if (object.value("event", "") == "summary") summary = object;
  }
  ASSERT_EQ(seconds.size(), 5u);
  const double usual = *std::min_element(seconds.begin() + 1, seconds.begin() + 4);
  EXPECT_GT(seconds[4], 0.4 * usual) << "16 of a step's works would be less than a tenth";
  EXPECT_GT(summary.at("first_step_seconds"), 0.4 * usual);
  EXPECT_LT(summary.at("first_step_seconds"), summary.at("seconds").get<double>() - 3 * usual);
}

TEST_F(QueuedTrainer, SkipsOverflowingStepsOnTheDevice) {
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
  // Step 5 was in flight before the result of step 4 was known; the validations wait for steps 3 and 6.
  EXPECT_EQ(halvings, (std::vector{0, 0, 0, 1, 1, 2, 3}));
}

TEST_F(QueuedTrainer, StopsAtANonFiniteLoss) {
  train::TrainOptions options = options_of(folder, "broken");
  options.lr = 1e30;
  EXPECT_THROW(train_queued(options), Error);
}

}  // namespace
}  // namespace fsdp::test
