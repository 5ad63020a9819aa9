// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <numeric>

#include <fsdp/checkpoint/safetensors.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::checkpoint {
namespace {

using test::content_of;
using test::TemporaryFolder;

TEST(PlanFile, GivesTheReferencesBytes) {
  EXPECT_EQ(plan_file({}).header, std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_EQ(
      plan_file({{"attn.0", {1, 2, 3}}}).header,
      std::string("\x40\0\0\0\0\0\0\0", 8) + R"({"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})");
  EXPECT_EQ(plan_file({{"attn0", {1, 1, 2, 3}}}).header,
            std::string("\x48\0\0\0\0\0\0\0", 8) +
                R"({"attn0":{"dtype":"F32","shape":[1,1,2,3],"data_offsets":[0,24]}}       )");
}

TEST(PlanFile, SortsByNameAndKeepsTheCallersOrderOfOffsets) {
  const FilePlan plan = plan_file({{"b", {2}}, {"a", {3}}, {"c", {}}}, {{"format", "pt"}});
  const auto start = static_cast<std::int64_t>(plan.header.size());
  EXPECT_EQ(plan.offsets, (std::vector<std::int64_t>{start + 12, start, start + 20}));
  EXPECT_EQ(plan.file_bytes, start + 24);
  EXPECT_EQ(start % 8, 0);
  EXPECT_NE(plan.header.find(R"({"__metadata__":{"format":"pt"},"a":)"), std::string::npos);
}

TEST(PlanFile, RefusesNamesThatCannotStandTwice) {
  EXPECT_INPUT_ERROR(plan_file({{"a", {1}}, {"a", {2}}}), "two tensors are called \"a\"");
  EXPECT_INPUT_ERROR(plan_file({{"__metadata__", {1}}}), "no tensor can be called");
  EXPECT_INPUT_ERROR(plan_file({{"a", {INT64_MAX, 2}}}), "overflow");
}

TEST(SharedFile, RangesOfSeveralRanksMakeOneFile) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "m.safetensors";
  const FilePlan plan = plan_file({{"w", {5, 3}}, {"norm", {7}}, {"empty", {0, 4}}});
  std::vector<float> w(15), norm(7, -1.5f);
  std::iota(w.begin(), w.end(), 0.25f);

  SharedFile first = SharedFile::create(path, plan);
  SharedFile second = SharedFile::join(path, plan);
  second.write_range(0, 6, std::span(w).subspan(6));
  first.write_range(0, 0, std::span(w).first(6));
  first.write_range(1, 0, norm);
  second.write_range(2, 0, {});
  first.finish();
  second.finish();

  const SafetensorsFile file(path);
  std::vector<float> read(15);
  file.read_range(file.at("w"), 0, 15, read.data());
  EXPECT_EQ(read, w);
  read.resize(7);
  file.read_range(file.at("norm"), 0, 7, read.data());
  EXPECT_EQ(read, norm);
  EXPECT_EQ(file.at("empty").shape, (std::vector<std::int64_t>{0, 4}));
}

TEST(SharedFile, NeverOverwritesAndNeverWritesOutside) {
  const TemporaryFolder folder;
  const FilePlan plan = plan_file({{"w", {4}}});
  const std::filesystem::path path = folder.write("old", "precious");
  EXPECT_INPUT_ERROR(SharedFile::create(path, plan), "File exists");
  EXPECT_INPUT_ERROR(SharedFile::join(path, plan), "were planned");
  EXPECT_EQ(content_of(path), "precious");
  EXPECT_INPUT_ERROR(SharedFile::join(folder.path() / "absent", plan), "do all ranks see the same directory?");
  EXPECT_INPUT_ERROR(SharedFile::create(folder.path() / "no" / "file", plan), "cannot be created");

  const SharedFile file = SharedFile::create(folder.path() / "new", plan);
  const std::vector<float> values(3);
  EXPECT_THROW(file.write_range(0, 2, values), LogicError);
  EXPECT_THROW(file.write_range(1, 0, values), LogicError);
  EXPECT_THROW(file.write_range(0, -1, values), LogicError);
}

TEST(SharedFile, AFileThatDoesNotFitIsRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_INPUT_ERROR(SharedFile::create(folder.path() / "m", plan_file({{"w", {1 << 20}}})), "is the disk full?");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
}

}  // namespace
}  // namespace fsdp::checkpoint
