// SPDX-License-Identifier: Apache-2.0
// The literal bytes of records and messages were written and serialized by the Python package tensorboard.
#include <tessera/trainer/report/metrics.hpp>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "src/fsdp/checkpoint/manifest.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::report {
namespace {

using std::string_literals::operator""s;

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t number = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.at(0));
    bytes.remove_prefix(1);
    number |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return number;
  }
}

std::string_view take(std::string_view& bytes, std::size_t count) {
  EXPECT_LE(count, bytes.size());
  const std::string_view part = bytes.substr(0, count);
  bytes.remove_prefix(part.size());
  return part;
}

struct Event {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version;
  bool start = false;
  std::map<std::string, float, std::less<>> scalars;
};

std::pair<std::string, float> scalar_in(std::string_view value) {
  std::pair<std::string, float> scalar;
  EXPECT_EQ(take_varint(value), 1u << 3 | 2u);
  scalar.first = take(value, take_varint(value));
  EXPECT_EQ(take_varint(value), 2u << 3 | 5u);
  scalar.second = std::bit_cast<float>(static_cast<std::uint32_t>(little_endian(take(value, 4))));
  EXPECT_TRUE(value.empty());
  return scalar;
}

Event event_in(std::string_view message) {
  Event event;
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message);
    if (key == (1u << 3 | 1u)) {
      event.wall_time = std::bit_cast<double>(little_endian(take(message, 8)));
    } else if (key == (2u << 3)) {
      event.step = static_cast<std::int64_t>(take_varint(message));
    } else if (key == (3u << 3 | 2u)) {
      event.version = take(message, take_varint(message));
    } else if (key == (7u << 3 | 2u)) {
      event.start = take(message, take_varint(message)) == "\x08\x01";
    } else {
      EXPECT_EQ(key, 5u << 3 | 2u);
      for (std::string_view summary = take(message, take_varint(message)); !summary.empty();) {
        EXPECT_EQ(take_varint(summary), 1u << 3 | 2u);
        event.scalars.insert(scalar_in(take(summary, take_varint(summary))));
      }
    }
  }
  return event;
}

std::uint64_t masked(std::string_view bytes) {
  const std::uint32_t crc = checkpoint::crc32c(std::as_bytes(std::span(bytes)));
  return static_cast<std::uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8u);
}

/// The complete records of a file; like other readers, this ignores an incomplete record at the end.
std::vector<Event> events_in(std::string_view bytes) {
  std::vector<Event> events;
  while (bytes.size() >= 12) {
    const std::string_view length = take(bytes, 8);
    EXPECT_EQ(little_endian(take(bytes, 4)), masked(length));
    if (bytes.size() < little_endian(length) + 4) break;
    const std::string_view message = take(bytes, little_endian(length));
    EXPECT_EQ(little_endian(take(bytes, 4)), masked(message));
    events.push_back(event_in(message));
  }
  return events;
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(TextEvent, HasTheFormatOfTensorBoardsTextPlugin) {
  EXPECT_EQ(text_event(1.5, 7, "t", "    a"),
            "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\x07\x2a\x20\x0a\x1e\x0a\x01\x74\x42\x0f\x08\x07\x12\x04\x12\x02"
            "\x08\x01\x42\x05\x20\x20\x20\x20\x61\x4a\x08\x0a\x06\x0a\x04\x74\x65\x78\x74"s);
}

TEST(TfRecord, ConsistsOfLengthChecksumMessageChecksum) {
  // These bytes were written by TensorBoard's RecordWriter.
  EXPECT_EQ(tf_record(""), "\0\0\0\0\0\0\0\0\x29\x03\x98\x07\xd8\xea\x82\xa2"s);
  const std::string record = tf_record("123456789");
  EXPECT_EQ(record.size(), 8 + 4 + 9 + 4u);
  EXPECT_EQ(little_endian(std::string_view(record).substr(21)), (0xe3069283u >> 15 | 0xe3069283u << 17) + 0xa282ead8u);
}

TEST(TensorBoardEvent, IsAProtobufMessage) {
  EXPECT_EQ(version_event(1.0), "\x09\0\0\0\0\0\0\xf0\x3f\x1a\x0d"s + "brain.Event:2");
  EXPECT_EQ(start_event(1.0, 300), "\x09\0\0\0\0\0\0\xf0\x3f\x10\xac\x02\x3a\x02\x08\x01"s);
  const Scalar scalar{"lr", 0.5};
  EXPECT_EQ(scalars_event(1.0, 2, {&scalar, 1}),
            "\x09\0\0\0\0\0\0\xf0\x3f\x10\x02\x2a\x0b\x0a\x09\x0a\x02lr\x15\0\0\0\x3f"s);
}

TEST(TensorBoard, WritesVersionAndFirstStepThenFlushesEachRecord) {
  const test::TemporaryFolder folder;
  TensorBoard board(folder.path() / "runs" / "one");
  const std::filesystem::path file = files_in(folder.path() / "runs" / "one").at(0);
  EXPECT_TRUE(file.filename().string().starts_with("events.out.tfevents.")) << file;
  EXPECT_TRUE(file.filename().string().ends_with("." + std::to_string(::getpid()))) << file;
  board.write(StartRecord{.world = 4, .first_step = 7});
  board.write(StepRecord{.step = 7,
                         .loss = 2.5,
                         .grad_norm = INFINITY,
                         .loss_scale = 64,
                         .lr = 1e-3,
                         .tokens = 1024,
                         .tokens_per_second = 400,
                         .step_seconds = 0.25,
                         .peak_bytes = std::int64_t{3} << 30,
                         .tflops = 2,
                         .mfu = 0.5,
                         .groups = {{.name = "*.b", .lr = 0.25, .grad_norm = 2.0}, {.name = "c", .grad_norm = 3.0}}});
  board.write(ValidationRecord{.step = 7, .validation_loss = 1.5});
  board.write(SummaryRecord());
  const std::vector<Event> events = events_in(test::content_of(file));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_GT(events[0].wall_time, 1.7e9);
  EXPECT_TRUE(events[1].start);
  EXPECT_EQ(events[1].step, 7);
  EXPECT_EQ(events[2].step, 7);
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float, std::less<>>{{"loss_metrics/global_avg_loss", 2.5f},
                                                                          {"grad_norm", INFINITY},
                                                                          {"loss_scale", 64.0f},
                                                                          {"lr", 1e-3f},
                                                                          {"n_tokens_seen", 1024.0f},
                                                                          {"throughput(tps)", 100.0f},
                                                                          {"tflops", 0.5f},
                                                                          {"time_metrics/end_to_end(s)", 0.25f},
                                                                          {"memory/max_active(GiB)", 3.0f},
                                                                          {"lr/*.b", 0.25f},
                                                                          {"grad_norm/*.b", 2.0f},
                                                                          {"grad_norm/c", 3.0f},
                                                                          {"mfu(%)", 50.0f}}));
  EXPECT_EQ(events[3].scalars, (std::map<std::string, float, std::less<>>{{"validation_metrics/loss", 1.5f}}));
}

TEST(TensorBoard, UnknownValuesHaveNoTag) {
  const test::TemporaryFolder folder;
  TensorBoard board(folder.path());
  board.write(StepRecord{.step = 1});
  const std::vector<Event> events = events_in(test::content_of(files_in(folder.path()).at(0)));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_FALSE(events[1].scalars.contains("mfu(%)"));
  EXPECT_FALSE(events[1].scalars.contains("loss_scale"));
}

TEST(TensorBoard, EachStartWritesANewFileThatSortsLast) {
  const test::TemporaryFolder folder;
  const auto ahead = folder.write("events.out.tfevents.9000000000.host.1", tf_record(version_event(1)) + "part");
  TensorBoard(folder.path()).write(StartRecord{.first_step = 3});
  TensorBoard(folder.path()).write(StartRecord{.first_step = 5});
  const std::vector<std::filesystem::path> files = files_in(folder.path());
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0], ahead);
  EXPECT_EQ(events_in(test::content_of(files[0])).size(), 1u);
  EXPECT_EQ(events_in(test::content_of(files[1])).at(1).step, 3);
  EXPECT_EQ(events_in(test::content_of(files[2])).at(1).step, 5);
}

TEST(TensorBoard, WithoutAFolderWritesNothingAndAnUnwritableOneIsAnError) {
  TensorBoard none;
  none.write(StartRecord());
  none.write(StepRecord());
  TensorBoard("").write(ValidationRecord());
  const test::TemporaryFolder folder;
  const auto file = folder.write("file", "");
  EXPECT_INPUT_ERROR(TensorBoard(file / "below"),
                     "--tensorboard " + (file / "below").string() + ": cannot be written: Not a directory");
  EXPECT_INPUT_ERROR(TensorBoard{file}, "file: cannot be written: ");
}

TEST(TensorBoard, AFullDiskIsAnInputErrorAndCompleteRecordsRemain) {
  const test::TemporaryFolder folder;
  TensorBoard board(folder.path());
  board.write(StepRecord{.step = 1});
  const std::filesystem::path file = files_in(folder.path()).at(0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit full = before;
  full.rlim_cur = std::filesystem::file_size(file) + 20;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const std::string said = test::input_error_of([&] { board.write(StepRecord{.step = 2}); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  test::expect_parts(said, {": cannot be written (is the disk full?)"});
  EXPECT_EQ(events_in(test::content_of(file)).size(), 2u);
}

}  // namespace
}  // namespace fsdp::report
