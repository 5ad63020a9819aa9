// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/resource.h>

#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include <tessera/fsdp/checkpoint/safetensors.hpp>
#include "src/fsdp/checkpoint/posix.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::checkpoint {
namespace {

using test::content_of;
using test::TemporaryFolder;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Writes values in a 16-bit type and returns the stored 16 bits of each.
std::vector<std::uint16_t> stored(const std::vector<float>& values, DType dtype) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "m";
  const FilePlan plan = plan_file({{"w", {std::ssize(values)}}}, {}, dtype);
  SharedFile file = SharedFile::create(path, plan);
  file.write_range(0, 0, values);
  file.finish();
  std::vector<std::uint16_t> bits(values.size());
  std::memcpy(bits.data(), content_of(path).data() + plan.offsets[0], bits.size() * sizeof bits[0]);
  return bits;
}
using Bits = std::vector<std::uint16_t>;

TEST(PlanFile, MatchesTheBytesOfTheReferenceImplementation) {
  EXPECT_EQ(plan_file({}).header, std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_EQ(
      plan_file({{"attn.0", {1, 2, 3}}}).header,
      std::string("\x40\0\0\0\0\0\0\0", 8) + R"({"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})");
  EXPECT_EQ(plan_file({{"attn0", {1, 1, 2, 3}}}).header,
            std::string("\x48\0\0\0\0\0\0\0", 8) +
                R"({"attn0":{"dtype":"F32","shape":[1,1,2,3],"data_offsets":[0,24]}}       )");
}

TEST(PlanFile, SortsTensorsByNameAndReturnsOffsetsInCallerOrder) {
  const FilePlan plan = plan_file({{"b", {2}}, {"a", {3}}, {"c", {}}}, {{"format", "pt"}});
  const auto start = static_cast<std::int64_t>(plan.header.size());
  EXPECT_EQ(plan.offsets, (std::vector<std::int64_t>{start + 12, start, start + 20}));
  EXPECT_EQ(plan.file_bytes, start + 24);
  EXPECT_EQ(start % 8, 0);
  test::expect_parts(plan.header, {R"({"__metadata__":{"format":"pt"},"a":)"});
}

TEST(PlanFile, RefusesDuplicateAndReservedNamesAndOverflowingShapes) {
  EXPECT_INPUT_ERROR(plan_file({{"a", {1}}, {"a", {2}}}), "two tensors are called \"a\"");
  EXPECT_INPUT_ERROR(plan_file({{"__metadata__", {1}}}), "no tensor can be called");
  EXPECT_INPUT_ERROR(plan_file({{"a", {INT64_MAX, 2}}}), "overflow");
}

TEST(PlanFile, RefusesTensorsThatTheReaderWouldRefuse) {
  const std::string names = "safetensors: a tensor's name must have 1 to 512 bytes of UTF-8 and no control characters";
  const auto named = [](std::string name) { return plan_file({{std::move(name), {1}}}); };
  EXPECT_INPUT_ERROR(named(""), names);
  EXPECT_INPUT_ERROR(named("a\nb"), names + "; found \"a\\nb\"");
  EXPECT_INPUT_ERROR(named("a\x7f"), names);
  EXPECT_INPUT_ERROR(named("\xff\xfe"), names + "; found \"\\xff\\xfe\"");
  EXPECT_INPUT_ERROR(named(std::string(513, 'n')), names);
  EXPECT_NO_THROW(named(std::string(512, 'n')));
  EXPECT_NO_THROW(named("\u00e4/\U0001f600"));
  EXPECT_INPUT_ERROR(plan_file({{"a", std::vector<std::int64_t>(9, 1)}}), "has 9 extents; at most 8 can be read");
}

TEST(SharedFile, RangesWrittenBySeveralRanksFormOneFile) {
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

TEST(SharedFile, RoundsToNearestEvenBf16) {
  EXPECT_EQ(stored({1 + 0x1p-8f, 1 + 0x1p-8f + 0x1p-23f, 1 + 0x3p-8f, 1 + 0x3p-8f - 0x1p-23f}, DType::bf16),
            (Bits{0x3f80, 0x3f81, 0x3f82, 0x3f81}));
  EXPECT_EQ(stored({-1 - 0x1p-8f, -1 - 0x3p-8f, -0.0f, infinity, -infinity}, DType::bf16),
            (Bits{0xbf80, 0xbf82, 0x8000, 0x7f80, 0xff80}));
  // Subnormal numbers are whole multiples of 2^-133.
  EXPECT_EQ(stored({0x1p-134f, 0x3p-135f, 0x3p-134f, -0x3p-134f, 0x1p-149f}, DType::bf16),
            (Bits{0x0000, 0x0001, 0x0002, 0x8002, 0x0000}));
}

TEST(SharedFile, RoundsToNearestEvenF16) {
  EXPECT_EQ(stored({1 + 0x1p-11f, 1 + 0x1p-11f + 0x1p-23f, 1 + 0x3p-11f, 1 + 0x3p-11f - 0x1p-23f}, DType::f16),
            (Bits{0x3c00, 0x3c01, 0x3c02, 0x3c01}));
  EXPECT_EQ(stored({-1 - 0x1p-11f, -1 - 0x3p-11f, -0.0f, infinity, -infinity}, DType::f16),
            (Bits{0xbc00, 0xbc02, 0x8000, 0x7c00, 0xfc00}));
  // Subnormal numbers are whole multiples of 2^-24; the largest rounds up to the smallest normal one.
  EXPECT_EQ(stored({0x1p-25f, 0x1.8p-25f, 0x3p-25f, -0x3p-25f, 0x7ffp-25f, 1e-30f}, DType::f16),
            (Bits{0x0000, 0x0001, 0x0002, 0x8002, 0x0400, 0x0000}));
  EXPECT_EQ(stored({65519.99f, -65519.99f}, DType::f16), (Bits{0x7bff, 0xfbff}));
}

TEST(SharedFile, RefusesFiniteValuesThatRoundToInfinity) {
  EXPECT_INPUT_ERROR(stored({1, 65520}, DType::f16), "tensor \"w\" holds 65520, too large for f16; take bf16 or f32");
  EXPECT_INPUT_ERROR(stored({-65520}, DType::f16), "holds -65520, too large for f16");
  EXPECT_EQ(stored({std::bit_cast<float>(0x7f7f7fffu)}, DType::bf16), (Bits{0x7f7f}));
  EXPECT_INPUT_ERROR(stored({std::bit_cast<float>(0x7f7f8000u)}, DType::bf16), "too large for bf16; take f32");
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

TEST(PartFile, IsRenamedWhenFinishedAndRemovedOtherwise) {
  const test::TemporaryFolder folder;
  const std::filesystem::path part = folder.path() / "a.part", path = folder.path() / "a";
  {
    PartFile file(part, path);
    file.write("abc", 3, 0);
    EXPECT_TRUE(std::filesystem::exists(part));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));

  PartFile file(part, path);
  file.write("bc", 2, 1);
  file.write("a", 1, 0);
  file.finish();
  EXPECT_EQ(test::content_of(path), "abc");
  EXPECT_FALSE(std::filesystem::exists(part));
}

TEST(PartFile, IsRemovedIfItCannotBeRenamed) {
  const test::TemporaryFolder folder;
  folder.write("a/in_the_way", "");
  {
    PartFile file(folder.path() / "a.part", folder.path() / "a");
    EXPECT_THROW(file.finish(), FileError);
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "a.part"));
}

TEST(PartFile, ReplacesLeftoversOfAKilledRun) {
  const test::TemporaryFolder folder;
  folder.write("elsewhere", "kept");
  std::filesystem::create_symlink(folder.path() / "elsewhere", folder.path() / "a.part");
  PartFile file(folder.path() / "a.part", folder.path() / "a");
  file.write("new", 3, 0);
  file.finish();
  EXPECT_EQ(test::content_of(folder.path() / "a"), "new");
  EXPECT_EQ(test::content_of(folder.path() / "elsewhere"), "kept");
}

}  // namespace
}  // namespace fsdp::checkpoint
