// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/digest_file.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/trainer/report/digest_diff.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::report {
namespace {

using Kind = StepDigest::Kind;

TEST(DigestStart, CountsOnePiecePerMicroBatchAndGroupOfRanks) {
  EXPECT_EQ(digest_start({.world = 4}, 3).pieces, 12);
  EXPECT_EQ(digest_start({.world = 4, .ranks_per_sequence = 2}, 3).pieces, 6);
  EXPECT_EQ(digest_start({.world = 4, .ranks_per_sequence = 2, .pieces = 5}, 3).pieces, 5);
}

DigestStart start_of(std::int64_t pieces = 2) {
  return {.pieces = pieces,
          .stack = "fsdp2:pieces=2 threads:2 fp32 off",
          .model_name = "tiny",
          .sizes = {{"layers", std::int64_t{2}}, {"rope_theta", 1e4}, {"tied", true}, {"family", std::string("llama")}},
          .seed = UINT64_MAX,
          .world = 2,
          .threads = 1,
          .instruction_set = "avx2"};
}

/// The digests of a step of two units; the bits differ between steps.
std::vector<StepDigest> step_of(std::uint64_t step, int pieces = 2) {
  std::vector<StepDigest> list;
  std::uint64_t bits = step << 32;
  for (int piece = 0; piece < pieces; ++piece)
    for (const Kind kind : {Kind::forward, Kind::backward})
      list.push_back({kind, piece, kind == Kind::forward ? "embedding" : "block 0", ++bits});
  bits = step << 48;
  for (const Kind kind : {Kind::gradient, Kind::weights})
    for (const char* unit : {"embedding", "block 0"}) list.push_back({kind, -1, unit, ++bits});
  return list;
}

class Digests : public ::testing::Test {
 protected:
  /// Writes the digests of steps [first, last] like a run.
  std::string written(const std::string& name, std::uint64_t first, std::uint64_t last,
                      const std::function<void(std::uint64_t, std::vector<StepDigest>&)>& change = {},
                      const DigestStart& start = start_of()) {
    DigestWriter writer(folder_.path() / name);
    writer.begin(start);
    for (std::uint64_t step = first; step <= last; ++step) {
      std::vector<StepDigest> digests = step_of(step, static_cast<int>(start.pieces));
      if (change) change(step, digests);
      writer.write(static_cast<std::int64_t>(step), digests);
    }
    return folder_.path() / name;
  }
  void append(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::app) << text; }

  test::TemporaryFolder folder_;
};

TEST_F(Digests, ALineContainsStepPieceUnitAndKind) {
  EXPECT_EQ(json_line(5, {Kind::forward, 3, "block 2", 0x9f3c}),
            R"({"step":5,"piece":3,"unit":"block 2","kind":"forward","bits":"0000000000009f3c"})");
  EXPECT_EQ(json_line(5, {Kind::weights, -1, "block 2", UINT64_MAX}),
            R"({"step":5,"unit":"block 2","kind":"weights","bits":"ffffffffffffffff"})");
}

TEST_F(Digests, RoundTrip) {
  const DigestFile file = read_digests(written("a", 1, 3));
  EXPECT_EQ(file.start, start_of());
  EXPECT_EQ(file.places.size(), 8u);
  ASSERT_EQ(file.steps.size(), 3u);
  const std::vector<StepDigest> second = step_of(2);
  EXPECT_TRUE(std::ranges::equal(file.steps.at(2), second, {}, {}, &StepDigest::bits));
  EXPECT_EQ(file.left_out, std::vector<std::string>{});
}

TEST_F(Digests, ForRepeatedStepsOfAResumedRunTheLastWrittenCount) {
  const std::string path = written("a", 1, 4, [](std::uint64_t step, auto& digests) {
    if (step == 3) digests.front().bits = 7;
  });
  written("a", 3, 5);
  EXPECT_EQ(in_words(compare(read_digests(path), read_digests(written("b", 1, 5)))),
            "steps 1 to 5 are the same (40 digests)");
}

TEST_F(Digests, IncompleteStepsOfAKilledRunAreIgnored) {
  const std::string whole = written("whole", 1, 4), path = written("a", 1, 2);
  append(path, json_line(3, step_of(3).front()) + "\n{\"step\":3,\"pie");
  DigestFile cut = read_digests(path);
  EXPECT_EQ(cut.steps.size(), 2u);
  EXPECT_EQ(cut.left_out, (std::vector<std::string>{path + ":19: is no line of a file of digests, or a part of one",
                                                    path + ": step 3 has 1 of 8 digests"}));
  written("a", 3, 4);  // after the truncated line
  EXPECT_EQ(in_words(compare(read_digests(whole), read_digests(path))), "steps 1 to 4 are the same (32 digests)");
}

TEST_F(Digests, ReportTheFirstDifferenceInComputationOrder) {
  const DigestFile a = read_digests(written("a", 1, 5));
  const auto parted = [&](const std::string& name, std::uint64_t step, std::vector<std::size_t> places) {
    return in_words(compare(a, read_digests(written(name, 1, 5, [&](std::uint64_t at, auto& digests) {
                              if (at >= step)
                                for (const std::size_t place : places) digests[place].bits ^= 1;
                            }))));
  };
  EXPECT_EQ(parted("b", 4, {2, 3, 7}),
            "steps 1 to 3 are the same (24 digests); they part in step 4, piece 1, embedding, forward");
  EXPECT_EQ(parted("c", 2, {5}), "step 1 is the same (8 digests); they part in step 2, block 0, gradient");
  EXPECT_EQ(parted("d", 1, {1}), "they part in step 1, piece 0, block 0, backward");
  const Divergence parting = *compare(a, read_digests(folder_.path() / "b")).parting;
  EXPECT_EQ(parting, (Divergence{.step = 4, .place = step_of(4)[2]}));
}

TEST_F(Digests, StepsInOnlyOneFileAreReported) {
  const DigestFile a = read_digests(written("a", 1, 6)), b = read_digests(written("b", 4, 8));
  const DigestComparison found = compare(a, b);
  EXPECT_EQ(in_words(found), "steps 4 to 6 are the same (24 digests)");
  EXPECT_EQ(found.notes,
            (std::vector<std::string>{"only " + a.name + " has steps 1 to 3", "only " + b.name + " has steps 7 to 8"}));
  EXPECT_INPUT_ERROR(compare(a, read_digests(written("c", 7, 7))), "have no step in common");
}

TEST_F(Digests, WithDifferentPiecesOnlyGradientsAndWeightsAreCompared) {
  const DigestFile a = read_digests(written("a", 1, 2)), b = read_digests(written("b", 1, 2, {}, start_of(4)));
  const DigestComparison found = compare(a, b);
  EXPECT_EQ(in_words(found), "steps 1 to 2 are the same (8 digests)");
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_EQ(found.notes.front(),
            "a step has 2 pieces in " + a.name + " and 4 in " + b.name + ": gradients and weights alone are compared");
}

TEST_F(Digests, DigestsOfDifferentModelsAreRefused) {
  const DigestFile a = read_digests(written("a", 1, 2));
  DigestStart other = start_of();
  other.sizes.front().value = std::int64_t{3};
  EXPECT_INPUT_ERROR(compare(a, read_digests(written("b", 1, 2, {}, other))), "are of other models: layers is 2 and 3");
  const auto renamed = [](std::uint64_t, auto& digests) { digests[1].name = "blocks 0 to 1"; };
  EXPECT_INPUT_ERROR(compare(a, read_digests(written("c", 1, 2, renamed))),
                     "are of models with other units: where one has piece 0, block 0, backward, the other has piece "
                     "0, blocks 0 to 1, backward");
  const auto shorter = [](std::uint64_t, auto& digests) { digests.pop_back(); };
  EXPECT_INPUT_ERROR(compare(a, read_digests(written("d", 1, 2, shorter))), "block 0, weights, the other has nothing");
}

TEST_F(Digests, RunsInOneFileMustHaveTheSameModelAndPieces) {
  written("a", 1, 2);
  const std::string path = written("b", 1, 2);
  append(path, json_line(start_of(4)) + "\n");
  EXPECT_INPUT_ERROR(read_digests(path), "b:18: a run of 4 pieces a step, behind one of 2; give each run a file");
  DigestStart other = start_of();
  other.sizes.front().value = std::int64_t{3};
  append(folder_.path() / "a", json_line(other) + "\n");
  EXPECT_INPUT_ERROR(read_digests(folder_.path() / "a"), "a run of another model than the one before it (layers is 2");
}

TEST_F(Digests, AreNotAppendedToAFileOfAnIncompatibleRun) {
  const std::string path = written("a", 1, 2);
  EXPECT_INPUT_ERROR(written("a", 3, 4, {}, start_of(4)),
                     "--digests " + path + ": a run of 4 pieces a step, behind one of 2; give each run a file");
  DigestStart other = start_of();
  other.sizes.front().value = std::int64_t{3};
  EXPECT_INPUT_ERROR(written("a", 3, 4, {}, other),
                     "a run of another model than the one before it (layers is 2 and 3)");
  EXPECT_INPUT_ERROR(DigestWriter(path).require_like(other), "a run of another model");
  EXPECT_EQ(read_digests(path).steps.size(), 2u);
  folder_.write("metrics", R"({"event":"start","loss":1})");
  EXPECT_INPUT_ERROR(written("metrics", 1, 1), "metrics: is another file than one of digests; give a new one");
}

TEST_F(Digests, StepsWithDamagedLinesAreSkipped) {
  const DigestFile whole = read_digests(written("whole", 1, 4));
  const auto damaged = [&](std::size_t line) {  // damages this line of the file; line 0 describes the run
    const std::string path = written("damaged", 1, 4);
    std::ifstream in(path);
    std::string text, all;
    for (std::size_t i = 0; std::getline(in, text); ++i) all += (i == line ? text.substr(0, 20) : text) + "\n";
    in.close();
    folder_.write("damaged", all);
    const DigestFile file = read_digests(path);
    const std::string found = message(in_words(compare(whole, file)), "; ", file.left_out.size(), " left out");
    std::filesystem::remove(path);
    return found;
  };
  const std::string first = "steps 2 to 4 are the same (24 digests); 2 left out";
  const std::string second = "3 steps from 1 to 4 are the same (24 digests); 2 left out";
  EXPECT_EQ(damaged(3), first);
  EXPECT_EQ(damaged(9), second);   // the first line of step 2
  EXPECT_EQ(damaged(12), second);  // a line in the middle
  EXPECT_EQ(damaged(16), second);  // the last line of step 2
  EXPECT_EQ(damaged(32), "steps 1 to 3 are the same (24 digests); 2 left out");
}

TEST_F(Digests, AFileWithoutDigestsIsRefused) {
  const auto refused = [&](const char* text, const std::string& why) {
    const auto path = folder_.write("bad", text);
    EXPECT_INPUT_ERROR(read_digests(path), why);
  };
  refused("", "bad: holds no digests; give files that --digests wrote");
  refused("{\"event\":\"start\",\"loss\":1}\n", "bad:1: does not say which pieces and sizes the digests are of");
  refused("{\"step\":1,\"loss\":2.5}\n", "bad: holds no digests; give files that --digests wrote. ");
  refused(R"({"step":1,"unit":"a","kind":"weights","bits":"0000000000009f3c"})",
          "bad:1: a digest, and no line before it says of which run");
  for (const char* line :
       {R"({"step":1,"unit":"a","kind":"weights","bits":"9f3c"})",
        R"({"step":-1,"unit":"a","kind":"weights","bits":"0000000000009f3c"})",
        R"({"step":1,"unit":"a","kind":"forward","bits":"0000000000009f3c"})",
        R"({"step":1,"group":"a","kind":"weights","bits":"0000000000009f3c"})",
        R"({"step":1,"piece":1,"unit":"a","kind":"sideways","bits":"0000000000009f3c"})", "[]", "1"}) {
    const auto path = folder_.write("bad", json_line(start_of()) + "\n" + line + "\n");
    EXPECT_INPUT_ERROR(read_digests(path), "bad:2: is no line of a file of digests, or a part of one");
  }
  EXPECT_INPUT_ERROR(read_digests(folder_.path() / "absent"), "absent: cannot be read: No such file");
  EXPECT_INPUT_ERROR(read_digests(folder_.path()), "cannot be read: Is a directory");
}

TEST_F(Digests, AreWrittenOnlyIfAPathIsGiven) {
  DigestWriter().begin(start_of());
  DigestWriter().write(1, step_of(1));
  const std::string path = folder_.path() / "absent" / "a";
  EXPECT_INPUT_ERROR(DigestWriter(path), "--digests " + path + ": cannot be written: No such file");
  EXPECT_INPUT_ERROR(DigestWriter("/dev/full").begin(start_of()), "cannot be written (is the disk full?)");
}

TEST_F(Digests, DifferencesListStacksAndThreadsOfTwoRuns) {
  DigestStart other = start_of();
  EXPECT_EQ(differences(start_of(), other), "");
  other.model_name = "elsewhere";
  EXPECT_EQ(differences(start_of(), other), "");
  other.threads = 4;
  other.stack = "zero3";
  EXPECT_EQ(differences(start_of(), other),
            "stacks are fsdp2:pieces=2 threads:2 fp32 off and zero3; threads are 1 and 4");
}

TEST_F(Digests, ADifferenceSuggestsTheReplayCommandForTensors) {
  const auto one_off = [](std::uint64_t, auto& digests) { digests[2].bits ^= 4; };
  const DigestSource a = read_source(written("a", 1, 1)), b = read_source(written("b", 1, 1, one_off));
  EXPECT_TRUE(diff(a, a).same);
  const DigestDiff found = diff(a, b);
  EXPECT_FALSE(found.same);
  ASSERT_EQ(found.lines.size(), 2u);
  EXPECT_EQ(found.lines[0], "they part in step 1, piece 1, embedding, forward");
  EXPECT_EQ(found.lines[1],
            "for the tensors: tessera replay CHECKPOINTS --step 1 --unit embedding --piece 1 --tensors FOLDER, of "
            "both runs");
  const auto quote = [](std::uint64_t step, auto& digests) {
    for (StepDigest& digest : digests) digest.name = "it's", digest.bits += step;
  };
  const auto apart = [&](std::uint64_t step, auto& digests) { quote(step + 1, digests); };
  test::expect_parts(diff(read_source(written("c", 1, 1, quote)), read_source(written("d", 1, 1, apart))).lines.back(),
                     {"--unit 'it'\\''s' --piece 0"});
  EXPECT_INPUT_ERROR(read_source(folder_.path()), "holds no digests.jsonl; give a file that --digests wrote");
}

}  // namespace
}  // namespace fsdp::report
