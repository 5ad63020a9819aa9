// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/console.hpp>

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>

#include <tessera/trainer/report/report.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::report {
namespace {

/// The output of a console of this style in four steps, with an additional line after the second step.
std::string printed(ConsoleStyle style, std::int64_t log_every) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("out", "");
  std::FILE* stream = std::fopen(path.c_str(), "w");
  {
    Console console(stream, style, 1, 4, log_every);
    for (std::int64_t step = 1; step <= 4; ++step) {
      console.step({.step = step, .loss = 2.5, .step_seconds = 30});
      if (step == 2) console.line("saved");
    }
  }
  std::fclose(stream);
  return test::content_of(path);
}

TEST(DurationText, ShowsMinutesAndSecondsAndHoursIfNeeded) {
  EXPECT_EQ(duration_text(7.2), "0:07");
  EXPECT_EQ(duration_text(754), "12:34");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(duration_text(NAN), "0:00");
}

TEST(StepText, ShowsAllMetricsOfAStep) {
  const StepRecord record{.step = 12,
                          .loss = 3.14159,
                          .grad_norm = 1.02,
                          .lr = 1e-3,
                          .tokens_per_second = 8123.4,
                          .peak_bytes = std::int64_t{1288490189}};
  EXPECT_EQ(step_text(record, 200), "step  12/200  loss 3.1416  norm 1.020  lr 1.00e-03  8,123 tok/s  peak 1.20 GiB");
  EXPECT_EQ(step_text(record, 200, "points"),
            "step  12/200  loss 3.1416  norm 1.020  lr 1.00e-03  8,123 points/s  peak 1.20 GiB");
}

TEST(SummaryText, EndsWithATableOfCollectives) {
  SummaryRecord record{.steps = 4, .tokens = 128, .seconds = 7, .peak_bytes = 2048};
  const std::string trained = "trained 4 steps, 128 tokens in 0:07; peak 2.00 KiB of tensors on each rank";
  EXPECT_EQ(summary_text(record), trained) << "on one rank";
  record.first_step_seconds = 2;
  const std::string first = "trained 4 steps, 128 tokens in 0:07, the first after 0:02; peak 2.00 KiB of tensors on ";
  EXPECT_EQ(summary_text(record), first + "each rank");
  record.first_step_seconds.reset();
  record.traffic.world[comm::Op::all_gather] = {.calls = 12, .bytes = 1536};
  record.traffic.shard[comm::Op::reduce_scatter] = {.calls = 3, .bytes = 1000000};
  EXPECT_EQ(summary_text(record), trained +
                                      "\ncollectives of rank 0, with the bytes of whole buffers"
                                      "\n  world     all_gather              12                1536  1.50 KiB"
                                      "\n  shard     reduce_scatter           3             1000000  976.56 KiB");
}

TEST(EstimateDigits, RoundToThreeSignificantDigits) {
  EXPECT_EQ(estimate_digits(95.0878), "95.1");
  EXPECT_EQ(estimate_digits(11027.4), "11,000");
  EXPECT_EQ(estimate_digits(9.996), "10.0");
  EXPECT_EQ(estimate_digits(999.6), "1,000");
  EXPECT_EQ(estimate_digits(0.0083056), "0.00831");
  EXPECT_EQ(estimate_digits(0), "0");
  EXPECT_EQ(planned_seconds_text(0.0083056), "8.31 ms");
  EXPECT_EQ(planned_seconds_text(95.0878), "95.1 s");
  EXPECT_EQ(planned_seconds_text(0), "0 s");
}

TEST(StartText, ReportsTheNumberOfTrainedParameters) {
  StartRecord record{.parameters = 1200, .trained = 200};
  test::expect_parts(start_text(record, "", 1, 0, 0), {" 1200 parameters (200 trained)"});
  record.trained = 1200;
  EXPECT_EQ(start_text(record, "", 1, 0, 0).find("trained"), std::string::npos);
}

TEST(SummaryText, ComparesMeasuredAndPlannedStepTime) {
  SummaryRecord record{.step = StepTimes{.all = 0.110, .collectives = 0.030}};
  const auto second_line = [&] {
    const std::string text = summary_text(record);
    return text.substr(text.find('\n') + 1);
  };
  EXPECT_EQ(second_line(), "a step took 110.000 ms (30.000 ms of it in collectives)");
  record.planned = StepTimes{.all = 0.100, .collectives = 0.025};
  EXPECT_EQ(
      second_line(),
      "a step took 110.000 ms (30.000 ms of it in collectives), 10.0 % more than the plan's 100 ms (25.0 ms of it "
      "in collectives)");
  record.planned = StepTimes{.all = 0.080, .collectives = 0.005};
  EXPECT_TRUE(second_line().ends_with("; most of it is collectives")) << second_line();
  record.planned = StepTimes{.all = 0.160, .collectives = 0.029};
  EXPECT_TRUE(second_line().ends_with("; most of it is computation")) << second_line();
  record.planned.reset();
  record.straggler = Straggler{.rank = 3, .ratio = 1.5};
  EXPECT_TRUE(second_line().ends_with("; rank 3 computes 1.50 times as long as the median rank")) << second_line();
  record.step.reset();
  EXPECT_EQ(summary_text(record).find('\n'), std::string::npos) << "no step was timed";
}

TEST(ProgressText, ShowsTheShareDoneAndTheTimeLeft) {
  EXPECT_EQ(progress_text({.step = 100, .loss = 2.1}, 200, 65),
            "[============>           ] 50%  step 100/200  loss 2.1000  1:05 left");
  EXPECT_EQ(progress_text({.step = 200}, 200, 0).find('>'), std::string::npos);
}

TEST(Console, AFileReceivesPlainLinesOnly) {
  const std::string text = printed({}, 2);
  EXPECT_EQ(text.find_first_of("\r\033"), std::string::npos);
  EXPECT_EQ(text, step_text({.step = 1, .loss = 2.5}, 4) + "  1:30 left\n" + step_text({.step = 2, .loss = 2.5}, 4) +
                      "  1:00 left\nsaved\n" + step_text({.step = 4, .loss = 2.5}, 4) + "\n");
}

TEST(Console, ATerminalShowsOneOverwrittenProgressLine) {
  const std::string text = printed({.terminal = true}, 4);
  test::expect_parts(text, {"2/4  loss 2.5000  1:00 left\r\033[Ksaved\n["});
  EXPECT_EQ(text.find("\033[36m"), std::string::npos);
  test::expect_parts(printed({.terminal = true, .colour = true}, 4), {"\033[36m"});
  EXPECT_EQ(text.substr(text.size() - 1), "\n");
}

TEST(Console, EscapesTerminalControlCharacters) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("out", "");
  std::FILE* stream = std::fopen(path.c_str(), "w");
  {
    Console console(stream, {.terminal = true}, 1, 4, 1);
    console.line("a\n\t\x1b[2J\u202E\xC3\xA4");
    console.progress("\x07");
  }
  std::fclose(stream);
  EXPECT_EQ(test::content_of(path), "a\n\t\\x1b[2J\\u202e\xC3\xA4\n\\x07\r\033[K");
}

TEST(Console, DetectsAClosedPipe) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::FILE* stream = ::fdopen(ends[1], "w");
  {
    Console console(stream, {}, 1, 4, 1);
    console.line("read");
    EXPECT_FALSE(console.output_is_closed());
    ::close(ends[0]);
    EXPECT_FALSE(console.output_is_closed()) << "nothing was written since";
    console.line("not read");
    EXPECT_TRUE(console.output_is_closed());
  }
  std::fclose(stream);
  std::FILE* full = std::fopen("/dev/full", "w");
  Console console(full, {}, 1, 4, 1);
  console.line("a disk without room is no reader that is gone");
  EXPECT_FALSE(console.output_is_closed());
  console.finish();
  std::fclose(full);
  std::signal(SIGPIPE, SIG_DFL);
}

TEST(AreOne, ComparesWhetherTwoStreamsAreTheSameFile) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("out", "").string(), other = folder.write("err", "").string();
  std::FILE* const one = std::fopen(path.c_str(), "w");
  std::FILE* const again = std::fopen(path.c_str(), "a");
  std::FILE* const another = std::fopen(other.c_str(), "w");
  EXPECT_TRUE(are_same_file(one, again));
  EXPECT_FALSE(are_same_file(one, another));
  for (std::FILE* stream : {one, again, another}) std::fclose(stream);
}

TEST(Console, AFileIsNotATerminalAndADefaultConsolePrintsNothing) {
  std::FILE* file = std::fopen("/dev/null", "w");
  EXPECT_FALSE(style_of(file).terminal);
  EXPECT_FALSE(style_of(file).colour);
  std::fclose(file);
  Console console;
  console.step({});
  console.line("nothing");
}

}  // namespace
}  // namespace fsdp::report
