// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/replay_request.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/trainer/run/output_files.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

const PolicyTexts policies = {.sharding = "fsdp2:pieces=4", .precision = "fp32", .tiling = "off"};

TEST(ReplayRecord, ContainsAbsolutePathsAndPolicyTexts) {
  TrainOptions options{.data = {"a.txt", "/b:0.5"}};
  const RunRecord record = replay_record(options, policies);
  EXPECT_EQ(replay_values(record, "data"),
            (std::vector<std::string>{(std::filesystem::current_path() / "a.txt").string(), "/b:0.5"}));
  EXPECT_EQ(replay_values(record, "sharding"), std::vector<std::string>{"fsdp2:pieces=4"});
  EXPECT_EQ(replay_values(record, "chat-template"), std::vector<std::string>{"auto"});
  EXPECT_EQ(replay_values(record, "end-token"), std::vector<std::string>{});
  EXPECT_EQ(replay_values(record, "tokenizer"), std::vector<std::string>{});
  options.text.tokenizer = "t.json";
  EXPECT_EQ(replay_values(replay_record(options, policies), "tokenizer"),
            std::vector<std::string>{(std::filesystem::current_path() / "t.json").string()});
  for (const auto& [name, value] : record) EXPECT_TRUE(is_for_replay(name)) << name;
  EXPECT_FALSE(is_for_replay("data"));
}

TEST(ReplayRecord, OmitsValuesThatACheckpointCannotStore) {
  for (const std::vector<std::string>& data :
       {std::vector<std::string>{"/a\nb"}, {"/\xff"}, std::vector<std::string>(1100, "/of/seventeen/b")}) {
    const RunRecord record = replay_record({.data = data}, policies);
    EXPECT_EQ(replay_values(record, "data"), std::vector<std::string>{}) << data.front();
    EXPECT_EQ(replay_values(record, "tiling"), std::vector<std::string>{"off"});
  }
}

const RunRecord recorded_in_pieces = {{"pieces", "4"},      {"ranks", "2"},
                                      {"threads", "1"},     {"data", "1 files"},
                                      {"grad-accum", "2"},  {"instruction-set", "avx512"},
                                      {"lr", "0.001"},      {"replay.sharding", "fsdp2:pieces=4"},
                                      {"model", "weights"}, {"stack", "fsdp2:pieces=4 threads:2 fp32 off"}};

/// The error message for a run that differs from `recorded_in_pieces` in one value.
std::string complaint_about(const std::string& name, const std::string& value, RunRecord then = recorded_in_pieces) {
  RunRecord now = then;
  now[name] = value;
  return test::input_error_of([&] { require_same_bits(then, now); });
}

TEST(RequireSameBits, AcceptsOtherRanksAndStrategiesForARunInPieces) {
  RunRecord now = recorded_in_pieces;
  now["ranks"] = "3";
  now["grad-accum"] = "1";
  now["stack"] = now["replay.sharding"] = "zero3:pieces=4";
  now["something-new"] = "here";
  EXPECT_NO_THROW(require_same_bits(recorded_in_pieces, now));
  EXPECT_NO_THROW(require_ranks(recorded_in_pieces, 7));
}

TEST(RequireSameBits, ReportsTheDifferenceAndASolution) {
  EXPECT_EQ(complaint_about("threads", "2"),
            "replay: each rank of the run had 1 thread, here it has 2, which changes the last bits; take --threads 1");
  EXPECT_EQ(complaint_about("data", "2 files"),
            "replay: the run's data was 1 files, here it is 2 files; give the run's data by --data");
  test::expect_parts(complaint_about("instruction-set", "avx2"), {"TESSERA_ISA chooses a lesser one"});
  test::expect_parts(complaint_about("lr", "0.1"), {"the run's --lr was 0.001, here it is 0.1"});
  RunRecord without = recorded_in_pieces;
  without.erase("pieces");
  test::expect_parts(complaint_about("grad-accum", "1", without), {"--grad-accum was 2, here it is 1"});
  EXPECT_NO_THROW(require_ranks(without, 2));
  EXPECT_INPUT_ERROR(require_ranks(without, 3),
                     "replay: a step of the run is not cut into pieces, so that its bits are those of 2 ranks, and "
                     "here are 3; take as many (--comm threads:2, or mpirun)");
}

TEST(ReplayRequest, IsCheckedBeforeAnythingStarts) {
  const test::TemporaryFolder folder;
  const TrainOptions options{.steps = 10};
  const std::string file = folder.write("a.jsonl", "{}");
  const auto refused = [&](const ReplayRequest& request, const char* why) {
    EXPECT_INPUT_ERROR(validate(request, options), why);
  };
  EXPECT_NO_THROW(validate(ReplayRequest{.step = 10, .tensors = "t", .choice = {.piece = 0}}, options));
  refused({}, "--step 0: the run has steps 1 to 10");
  refused({.step = 11}, "--step 11: the run has steps 1 to 10");
  refused({.step = 1, .choice = {.unit = "head"}}, "--unit says which tensors are written, and none are");
  refused({.step = 1, .choice = {.piece = 2}}, "--piece says which tensors are written, and none are");
  refused({.step = 1, .tensors = "t", .choice = {.piece = -1}}, "--piece -1: pieces are counted from 0");
  const TrainOptions shared{.steps = 10, .sequence = {.ranks = 2}};
  EXPECT_NO_THROW(validate(ReplayRequest{.step = 1}, shared));
  EXPECT_INPUT_ERROR(validate(ReplayRequest{.step = 1, .tensors = "t"}, shared),
                     "--tensors writes whole streams, and in this run (--sequence ulysses:2) no rank has a whole one");
  refused({.step = 1, .digests = file, .against = file}, "is the file that --against names; give it one of its own");
}

TEST(RequireApart, RefusesToWriteIntoTheRunOrItsData) {
  const test::TemporaryFolder folder;
  const std::string runs = folder.path() / "runs", data = folder.path() / "texts";
  folder.write("runs/step-00000004/config.json", "{}");
  folder.write("texts/a.txt", "a");
  const std::string file = folder.write("b.txt", "b"), against = folder.path() / "other";
  folder.write("other/digests.jsonl", "{}");
  const TrainOptions options{.data = {data, file}};
  const auto said = [&](const std::string& path, bool is_folder) {
    ReplayRequest request{.folder = runs, .step = 2, .against = against};
    (is_folder ? request.tensors : request.digests) = path;
    return test::input_error_of([&] { require_apart(request, options); });
  };
  for (const bool is_folder : {false, true}) {
    for (const std::string& path :
         {runs, runs + "/step-00000004/config.json", runs + "/step-00000007", data + "/../runs/new", runs + "/"})
      EXPECT_NE(said(path, is_folder).find("is in the run's folder, " + runs), std::string::npos) << path;
    for (const std::string& path : {data, data + "/a.txt", data + "/new"})
      EXPECT_NE(said(path, is_folder).find("is in the run's data, " + data), std::string::npos) << path;
    test::expect_parts(said(file, is_folder), {"is in the run's data, " + file});
    test::expect_parts(said(against + "/digests.jsonl", is_folder), {"is in what --against names"});
  }
  std::filesystem::create_symlink(runs, folder.path() / "link");
  test::expect_parts(said(folder.path() / "link" / "new", false), {"is in the run's folder"});
  const std::string elsewhere = folder.path() / "runs2";
  EXPECT_NO_THROW(require_apart({.folder = runs, .digests = elsewhere, .tensors = elsewhere + "3"}, options));
  EXPECT_INPUT_ERROR(require_apart({.folder = runs, .digests = elsewhere + "/a", .tensors = elsewhere}, options),
                     "is in the folder of --tensors");
}

TEST(RequireOneCourse, RefusesStepsBetweenWhichTheDataChanged) {
  const checkpoint::TrainerState before{.step = 2,
                                        .epoch = 0,
                                        .index = 16,
                                        .seed = 1,
                                        .windows = 20,
                                        .seq_len = 16,
                                        .run = {{"batch-size", "8"}, {"data", "a"}, {"lr", "0.1"}}};
  checkpoint::TrainerState after = before;
  after.step = 4, after.epoch = 1, after.index = 12;
  after.run["lr"] = "0.2";
  EXPECT_NO_THROW(require_same_course(before, after));
  EXPECT_NO_THROW(require_same_course({}, after));
  const auto said = [&](const auto& change, const checkpoint::TrainerState& then) {
    checkpoint::TrainerState now = after;
    change(now);
    return test::input_error_of([&] { require_same_course(then, now); });
  };
  const auto anew = [](auto& now) { now.index = 16; };
  EXPECT_EQ(said(anew, before),
            "replay: between its steps 2 and 4 the run's order of the data was begun anew, so that nothing tells what "
            "each step between read; take a step from before or behind them");
  test::expect_parts(said(anew, {}), {"between its steps 0 and 4 the run's order of the data was begun anew"});
  test::expect_parts(said([](auto& now) { now.seed = 2; }, before), {"--seed changed from 1 to 2"});
  test::expect_parts(said([](auto& now) { now.seq_len = 8; }, before), {"--seq-len changed from 16 to 8"});
  test::expect_parts(said([](auto& now) { now.run["batch-size"] = "4"; }, before),
                     {"--batch-size changed from 8 to 4"});
  test::expect_parts(said([](auto& now) { now.run["data"] = "b"; }, before), {"the run's data changed from a to b"});
}

TEST(RequireRandomStart, AcceptsOnlyRunsThatStartedFromRandomWeights) {
  const ReplayRequest request{.folder = "runs", .step = 3};
  EXPECT_NO_THROW(require_random_start(request, {{"model", "random weights"}}, 0));
  EXPECT_INPUT_ERROR(require_random_start(request, {{"model", "random weights"}}, 1),
                     "runs has no sound checkpoint before step 3; take a step behind one that is");
  EXPECT_INPUT_ERROR(require_random_start(request, {{"model", "the weights of digest 0"}}, 0),
                     "the run began with weights that it does not hold; take a step behind its first checkpoint");
}

}  // namespace
}  // namespace fsdp::train
