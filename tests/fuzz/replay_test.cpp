// SPDX-License-Identifier: Apache-2.0
// Every target of this folder reads the inputs in corpus/<target>: seeds and inputs that failed once.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"
#include "target.hpp"

namespace fsdp::fuzz {
namespace {

const std::filesystem::path corpus = std::filesystem::path(TESSERA_TEST_DATA) / "fuzz/corpus";

std::vector<std::string> names_of_targets() {
  std::vector<std::string> names;
  for (const auto& [name, target] : targets()) names.push_back(name);
  return names;
}

class Replay : public ::testing::TestWithParam<std::string> {};

TEST_P(Replay, EveryCorpusInputIsReadOrRefused) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(corpus / GetParam())) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  EXPECT_FALSE(files.empty());
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.filename().string());
    targets().at(GetParam())(test::content_of(file));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Replay, ::testing::ValuesIn(names_of_targets()),
                         [](const auto& info) { return info.param; });

TEST(Corpus, HasExactlyOneFolderPerTarget) {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(corpus)) folders.push_back(entry.path().filename());
  std::sort(folders.begin(), folders.end());
  EXPECT_EQ(folders, names_of_targets());
}

}  // namespace
}  // namespace fsdp::fuzz
