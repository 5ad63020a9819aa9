// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/data_inputs.hpp>

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::data {
namespace {

TEST(DataNames, APathMayBeFollowedByAWeight) {
  const std::array texts = {std::string("a:0.7"), std::string("b/c:3e-1")};
  const DataNames names = parse_data(texts);
  EXPECT_EQ(names.paths, (std::vector<std::string>{"a", "b/c"}));
  EXPECT_EQ(names.weights, (std::vector<double>{0.7, 0.3}));
  EXPECT_TRUE(parse_data(std::array{std::string("a"), std::string("b")}).weights.empty());
}

TEST(DataNames, AnExistingPathWithAColonIsAPath) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("a:1", "text").string();
  EXPECT_EQ(parse_data(std::array{path}).paths, std::vector<std::string>{path});
  EXPECT_EQ(parse_data(std::array{path + ":2"}).weights, std::vector<double>{2});
}

TEST(DataNames, ReportsInvalidWeights) {
  const test::TemporaryFolder folder;
  const std::string a = folder.write("a", "text").string();
  const auto parse = [&](const std::string& weight) { return parse_data(std::array{a + ":" + weight}); };
  EXPECT_INPUT_ERROR(parse("0"), "the weight '0' is no number above 0");
  EXPECT_INPUT_ERROR(parse("-1"), "no number above 0");
  EXPECT_INPUT_ERROR(parse("nan"), "no number above 0");
  EXPECT_INPUT_ERROR(parse("inf"), "no number above 0");
  EXPECT_INPUT_ERROR(parse("1x"), "the weight '1x'");
  EXPECT_INPUT_ERROR(parse_data(std::array{a + ":1", a}), "has no weight, and others have one");
}

TEST(DataNames, RoundTripBetweenRanksWithAnyCharactersInPaths) {
  const DataNames names{.paths = {"a b", "new\nline", "\xff\"\\"}, .weights = {0.1, 1e-300, 3}};
  EXPECT_EQ(names_from_text(to_text(names)), names);
  EXPECT_EQ(names_from_text(to_text(DataNames{})), DataNames{});
}

}  // namespace
}  // namespace fsdp::data
