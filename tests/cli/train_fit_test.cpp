// SPDX-License-Identifier: Apache-2.0
#include "src/program/cli/train_fit.hpp"

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "src/program/cli/way_flags.hpp"

namespace fsdp::cli {
namespace {

/// Parses `tessera train --data FILE ...`; the file exists, and nothing here reads it.
Bound<Train> parsed(std::vector<const char*> more) {
  std::vector<const char*> arguments = {"tessera", "train", "--data", TESSERA_TEST_DATA "/docs/two.toml",
                                        "--model", "tiny"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Command command = parse(static_cast<int>(arguments.size()), arguments.data());
  return std::get<Bound<Train>>(std::move(command));
}

/// Returns what an error of this type says that f throws; empty if it throws none.
template <class Error, class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Fastest, IsTheOneOfLeastSecondsAmongThoseThatCouldBeTimed) {
  EXPECT_EQ(fastest(std::vector<train::TimedStep>{{3}, {2}, {2.5}}), 1);
  EXPECT_EQ(fastest(std::vector<train::TimedStep>{{3}, {0, "no memory"}, {2.5}}), 2);
  EXPECT_EQ(fastest(std::vector<train::TimedStep>{{2}, {2}}), 0);
  EXPECT_EQ(fastest(std::vector<train::TimedStep>{{0, "no memory"}}), std::nullopt);
  EXPECT_EQ(fastest({}), std::nullopt);
}

TEST(WayFlags, AreTheCommandLineOfAWayAndMakeIt) {
  const Bound<Train> asked = parsed({"--batch-size", "16"});
  const Bound<Train> other =
      parsed({"--batch-size", "16", "--sharding", "hybrid:2:deferred", "--layout", "flat", "--sequence", "ulysses:2",
              "--grad-accum", "4", "--recompute", "--offload", "optimizer,inputs:0.5", "--tiling", "tokens:64"});
  const WayFlags plain = flags_of_way(*asked), flags = flags_of_way(*other);

  EXPECT_EQ(command_line(plain), "--sharding fsdp2");
  EXPECT_EQ(command_line(flags),
            "--sharding hybrid:2:deferred --layout flat --sequence ulysses:2 --grad-accum 4 --recompute --offload "
            "optimizer,inputs:0.5 --tiling tokens:64");
  EXPECT_EQ(with_flags(*asked, flags), *other);
  EXPECT_EQ(ways_of_text(text_of_ways(std::vector{flags, plain})), (std::vector{flags, plain}));
}

/// Stacks that take `planned` and then `timed` seconds for a step, by its strategy; others do not exist.
struct FakeStacks {
  std::map<std::string, double> planned;
  std::map<std::string, train::TimedStep> timed;
  std::vector<std::string> asked = {};  ///< which strategies were timed
  int trained = 0;

  FitStacks stacks() {
    return {.has = [](const StackChoice&) { return true; },
            .estimate =
                [this](const Train& train, const plan::Cluster& cluster) {
                  EXPECT_EQ(cluster.ranks, 2);
                  const auto found = planned.find(to_text(train.stack.sharding));
                  require<InputError>(found != planned.end(), "no such way");
                  train::EstimatedStep step;
                  step.estimate.seconds = found->second * static_cast<double>(train.options.grad_accum);
                  return step;
                },
            .on_ranks =
                [](const std::function<int(const comm::Ranks&)>& f) {
                  return comm::Threads<>::run(2, {}, [&](comm::Threads<>& ranks) { return f(ranks); });
                },
            .time =
                [this](const Train& train, train::TimedStep& step) {
                  asked.push_back(to_text(train.stack.sharding));
                  step = timed.at(asked.back());
                  return 0;
                },
            .train = [this] { return ++trained, 7; }};
  }
};

TEST(TrainFit, TrainsWithTheFlagsOfTheWayThatTookLeast) {
  FakeStacks fake{.planned = {{"fsdp2", 1}, {"zero1", 2}, {"zero2", 3}, {"replicated", 4}},
                  .timed = {{"fsdp2", {0, "no memory"}}, {"zero1", {5}}, {"zero2", {4}}}};
  Bound<Train> command = parsed({"--fit", "--cluster", "epyc", "--comm", "threads:2", "--grad-accum", "1"});
  ::testing::internal::CaptureStdout();
  const int status = train_fit(command, fake.stacks());
  const std::string told = ::testing::internal::GetCapturedStdout();

  EXPECT_EQ(status, 7);
  EXPECT_EQ(fake.asked, (std::vector<std::string>{"fsdp2", "zero1", "zero2"}));
  EXPECT_EQ(*command,
            *parsed({"--cluster", "epyc", "--comm", "threads:2", "--grad-accum", "1", "--sharding", "zero2"}));
  EXPECT_TRUE(command.flags.is_given("sharding"));
  EXPECT_FALSE(command.flags.is_given("fit"));
  EXPECT_NE(told.find("1  --sharding fsdp2\n             planned 1.00 s a step, passed over: no memory\n"),
            std::string::npos)
      << told;
  EXPECT_NE(told.find("3  --sharding zero2\n             planned 3.00 s a step, took 4.000 s; taken\n"),
            std::string::npos)
      << told;
}

TEST(TrainFit, TrainsNothingWhereNoWayHasMemory) {
  FakeStacks fake{.planned = {{"fsdp2", 1}}, .timed = {{"fsdp2", {0, "no 8 bytes"}}}};
  Bound<Train> command = parsed({"--fit", "--cluster", "epyc", "--comm", "threads:2", "--grad-accum", "1"});

  const std::string error = error_of<MemoryError>([&] { train_fit(command, fake.stacks()); });
  EXPECT_TRUE(error.ends_with("; --sharding fsdp2: no 8 bytes")) << error;
  EXPECT_EQ(fake.trained, 0);
}

TEST(TrainFit, RefusesFlagsWithWhichItMakesNoSense) {
  using Words = std::vector<const char*>;
  const std::vector<std::pair<Words, std::string>> cases = {
      {{}, "--cluster is missing; tessera calibrate --out FILE"},
      {{"--cluster", "epyc", "--dry-run"}, "--dry-run starts none"},
      {{"--cluster", "epyc", "--print-schedule"}, "--print-schedule starts none"},
      {{"--cluster", "epyc", "--resume", "auto"}, "--resume auto goes on"},
      {{"--cluster", "epyc", "--memory", "4GiB"}, "--memory 4GiB is for budgets"},
  };
  for (const auto& each : cases) {
    Words words = each.first;
    words.push_back("--fit");
    const std::string error = error_of<InputError>([&] { parsed(words); });
    EXPECT_NE(error.find(each.second), std::string::npos) << error;
  }
  EXPECT_NO_THROW(parsed({"--fit", "--cluster", "epyc"}));
}

}  // namespace
}  // namespace fsdp::cli
