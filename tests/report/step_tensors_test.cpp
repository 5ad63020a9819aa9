// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/step_tensors.hpp>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::report {
namespace {

using Kind = StepDigest::Kind;

const StepShapes shapes = {.units = {"embedding", "block 0", "head"},
                           .parameters = {{{.name = "e", .shape = {4, 2}}},
                                          {{.name = "w", .shape = {2, 2}}, {.name = "b", .shape = {2}}},
                                          {}},  // parameters of the head are frozen or shared with the embedding
                           .uses = {{0}, {1}, {0, 2}},
                           .pieces = 3,
                           .stream = {4, 2}};

/// Writes all selected tensors: the value of each element is its index plus `more`.
void write(const std::filesystem::path& folder, const TensorChoice& choice, const StepShapes& of, float more = 0) {
  StepTensors tensors(folder, choice, of), other_rank(folder, choice, of);
  tensors.create();
  other_rank.join();
  std::vector<float> values(8);
  std::iota(values.begin(), values.end(), more);
  for (int piece = 0; piece < of.pieces; ++piece)
    for (const int unit : {0, 1, 2})
      for (const Kind kind : {Kind::forward, Kind::backward})
        if (tensors.wants(kind, unit, piece))
          (piece % 2 == 0 ? tensors : other_rank).write_stream(kind, unit, piece, values);
  const std::span<const float> part(values);
  for (const Kind kind : {Kind::gradient, Kind::weights}) {
    tensors.write_parameter(kind, "w", 0, part.first(2));
    other_rank.write_parameter(kind, "w", 2, part.subspan(2, 2));
    other_rank.write_parameter(kind, "b", 0, part.first(2));
    tensors.write_parameter(kind, "e", 0, part);
    tensors.write_parameter(kind, "h", 0, part.first(2));  // frozen, so it is not selected
  }
  tensors.finish();
  other_rank.finish();
  tensors.keep();
  other_rank.keep();
}

StepDigest place(Kind kind, int piece, const char* name) { return {.kind = kind, .piece = piece, .name = name}; }

TEST(StepTensors, AreComparedElementByElement) {
  const test::TemporaryFolder folder;
  write(folder.path() / "a", {}, shapes);
  write(folder.path() / "b", {}, shapes, 0.5f);
  const auto largest = [&](const StepDigest& of) {
    return largest_difference(folder.path() / "a", folder.path() / "b", of);
  };
  const auto stream = largest(place(Kind::forward, 1, "block 0"));
  ASSERT_TRUE(stream.has_value());
  EXPECT_EQ(in_words(*stream), "the largest difference is 0.5, at [0, 0] of forward of block 0: 0 and 0.5");
  for (const StepDigest& there : {place(Kind::backward, 2, "head"), place(Kind::backward, 0, "block 0"),
                                  place(Kind::gradient, -1, "block 0"), place(Kind::weights, -1, "embedding")})
    EXPECT_TRUE(largest(there).has_value()) << there.name;
  // There is no stream after the head or before the first unit; frozen parameters have no gradient.
  for (const StepDigest& absent : {place(Kind::forward, 0, "head"), place(Kind::backward, 0, "embedding"),
                                   place(Kind::forward, 3, "block 0"), place(Kind::gradient, -1, "head")})
    EXPECT_FALSE(largest(absent).has_value()) << absent.name;
  EXPECT_FALSE(largest_difference(folder.path() / "a", folder.path() / "a", place(Kind::forward, 0, "block 0")));
}

TEST(StepTensors, DifferencesReportTheParameterAndTheElement) {
  const test::TemporaryFolder folder;
  for (const char* name : {"a", "b"}) {
    StepTensors tensors(folder.path() / name, {.unit = "block 0"}, shapes);
    tensors.create();
    const bool first = name == std::string("a");
    const std::vector<float> w = {0, 1, first ? 2.0f : NAN, 3}, b = {first ? 7.0f : 9.0f, 1};
    tensors.write_parameter(Kind::gradient, "w", 0, w);
    tensors.write_parameter(Kind::gradient, "b", 0, b);
    tensors.write_parameter(Kind::weights, "b", 0, b);
    tensors.finish();
    tensors.keep();
  }
  const auto largest = [&](Kind kind) {
    return in_words(*largest_difference(folder.path() / "a", folder.path() / "b", place(kind, -1, "block 0")));
  };
  EXPECT_EQ(largest(Kind::gradient), "the largest difference is nan, at [1, 0] of gradient of w: 2 and nan");
  EXPECT_EQ(largest(Kind::weights), "the largest difference is 2, at [0] of weights of b: 7 and 9");
}

TEST(StepTensors, IncludeOnlyTheSelectedUnitAndPiece) {
  const test::TemporaryFolder folder;
  const StepTensors all(folder.path() / "all", {}, shapes);
  EXPECT_TRUE(all.wants(Kind::forward, 0, 2) && all.wants(Kind::backward, 2, 0));
  EXPECT_FALSE(all.wants(Kind::forward, 2, 0) || all.wants(Kind::backward, 0, 0));
  const StepTensors some(folder.path() / "some", {.unit = "block 0", .piece = 1}, shapes);
  EXPECT_TRUE(some.wants(Kind::forward, 1, 1) && some.wants(Kind::backward, 1, 1));
  EXPECT_FALSE(some.wants(Kind::forward, 1, 0) || some.wants(Kind::forward, 0, 1));
  EXPECT_LT(some.bytes(), all.bytes());
  write(folder.path() / "some", {.unit = "head", .piece = 1}, shapes);  // this unit uses a parameter of the embedding
  const checkpoint::SafetensorsFile file(folder.path() / "some" / "parameters.safetensors");
  EXPECT_NE(file.find("gradient of e"), nullptr);
  EXPECT_EQ(file.tensors().size(), 2u);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "some" / "piece-00001.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "some" / "piece-00000.safetensors"));
}

TEST(StepTensors, RefuseUnitsAndPiecesThatAStepDoesNotHave) {
  const test::TemporaryFolder folder;
  EXPECT_INPUT_ERROR(
      StepTensors(folder.path() / "a", {.unit = "block 1"}, shapes),
      "--unit block 1 is no unit of this model; did you mean 'block 0'? Known: embedding, block 0, head");
  EXPECT_INPUT_ERROR(StepTensors(folder.path() / "a", {.piece = 3}, shapes),
                     "--piece 3: a step has pieces 0 to 2; give one of these");
  folder.write("a/b", "");
  StepTensors tensors(folder.path() / "a", {}, shapes);
  EXPECT_INPUT_ERROR(tensors.create(), "a: is not empty; give a new folder");
}

TEST(StepTensors, FilesOfAFailedStepAreRemoved) {
  const test::TemporaryFolder folder;
  const std::vector<float> values(8);
  std::filesystem::create_directory(folder.path() / "there");
  for (const char* name : {"made", "there"}) {
    {
      StepTensors tensors(folder.path() / name, {}, shapes), other_rank(folder.path() / name, {}, shapes);
      tensors.create();
      other_rank.join();
      tensors.write_stream(Kind::forward, 0, 0, values);
      other_rank.write_stream(Kind::forward, 0, 1, values);
      folder.write(std::string(name) + "/digests.jsonl", "");
    }
    EXPECT_EQ(std::filesystem::exists(folder.path() / name), name == std::string("there"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() / "there"));
  folder.write("full/mine", "");
  EXPECT_INPUT_ERROR(StepTensors(folder.path() / "full", {}, shapes).create(), "is not empty");
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "full" / "mine"));
}

TEST(StepTensors, DifferentShapesAreRefused) {
  const test::TemporaryFolder folder;
  StepShapes other = shapes;
  other.stream = {2, 4};
  write(folder.path() / "a", {}, shapes);
  write(folder.path() / "b", {}, other);
  EXPECT_INPUT_ERROR(largest_difference(folder.path() / "a", folder.path() / "b", place(Kind::forward, 0, "block 0")),
                     "forward of block 0 is [4, 2] in ");
}

}  // namespace
}  // namespace fsdp::report
