// SPDX-License-Identifier: Apache-2.0
#include "src/trainer/report/plot.hpp"

#include <gtest/gtest.h>
#include <range/v3/view/enumerate.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <tessera/trainer/report/metrics.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::report {
namespace {

std::string steps_from(std::int64_t first, std::int64_t last, double loss = 2) {
  std::string text;
  for (std::int64_t step = first; step <= last; ++step)
    text += json_line(StepRecord{.step = step, .loss = loss, .grad_norm = 1, .lr = 1e-3}) + "\n";
  return text;
}

std::string held_out(std::int64_t step, double loss) {
  return json_line(ValidationRecord{.step = step, .validation_loss = loss}) + "\n";
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Points of each polyline.
std::vector<std::size_t> points_in(const std::string& svg) {
  std::vector<std::size_t> counts;
  for (std::size_t at = svg.find(" points=\""); at != std::string::npos; at = svg.find(" points=\"", at + 1))
    counts.push_back(count(svg.substr(at + 9, svg.find('"', at + 9) - at - 9), ","));
  return counts;
}

TEST(ReadRun, ReadsStepsValidationLossesAndNonFiniteValues) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("m.jsonl", json_line(StartRecord{}) + "\n" + steps_from(1, 2) + held_out(2, 1.5) +
                                                json_line(StepRecord{.step = 3, .loss = NAN, .grad_norm = INFINITY}) +
                                                "\n" + json_line(SummaryRecord{}) + "\n");
  const PlottedRun run = read_run(path);
  EXPECT_EQ(run.name, path);
  ASSERT_EQ(run.steps.size(), 3u);
  EXPECT_EQ(run.steps[1].step, 2);
  EXPECT_EQ(run.steps[1].lr, 1e-3);
  EXPECT_TRUE(std::isnan(run.steps[2].loss));
  EXPECT_EQ(run.steps[2].grad_norm, INFINITY);
  ASSERT_EQ(run.held_out.size(), 1u);
  EXPECT_EQ(run.held_out[0].loss, 1.5);
  EXPECT_TRUE(run.left_out.empty());
}

TEST(ReadRun, RepeatedStepsOfAResumedRunAppearOnceWithTheLastValue) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("m.jsonl", steps_from(1, 6) + held_out(4, 9) + held_out(6, 9) +
                                                json_line(StartRecord{}) + "\n" + steps_from(5, 8, 3) + held_out(6, 4));
  const PlottedRun run = read_run(path);
  ASSERT_EQ(run.steps.size(), 8u);
  for (const auto& [i, step] : ranges::views::enumerate(run.steps)) {
    EXPECT_EQ(step.step, static_cast<std::int64_t>(i + 1));
    EXPECT_EQ(step.loss, i < 4 ? 2 : 3);
  }
  ASSERT_EQ(run.held_out.size(), 2u);
  EXPECT_EQ(run.held_out[0].loss, 9);
  EXPECT_EQ(run.held_out[1].loss, 4);
}

TEST(ReadRun, ReportsEmptyAndDamagedLinesByFileAndLine) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("m.jsonl", steps_from(1, 1) + "\n{\"step\":2,\"lo{\"event\":\"start\"}\n" +
                                                steps_from(2, 2) + "{\"step\":3}\n{\"step\":\"x\"}\n[1]\n" +
                                                "{\"event\":\"validation\",\"step\":2}\n{\"step\":4,\"loss\":1.2");
  const std::string name = path.string(), part = ": is no line of a metrics file, or a part of one";
  const PlottedRun run = read_run(path);
  EXPECT_EQ(run.steps.size(), 2u);
  EXPECT_EQ(run.left_out,
            (std::vector<std::string>{name + ":2: is empty", name + ":3" + part, name + ":5" + part, name + ":6" + part,
                                      name + ":7" + part, name + ":8" + part, name + ":9" + part}));
}

TEST(ReadRun, AFileWithoutStepsIsRefused) {
  const test::TemporaryFolder folder;
  EXPECT_INPUT_ERROR(read_run(folder.path() / "none"), "none: cannot be read: No such file");
  EXPECT_INPUT_ERROR(read_run(folder.path()), ": cannot be read: Is a directory");
  EXPECT_INPUT_ERROR(read_run(folder.write("empty", "")), "empty holds no step; give files that --metrics wrote");
  EXPECT_INPUT_ERROR(read_run(folder.write("text", "some text\n")), "text:1: is no line of a metrics file");
}

TEST(Ticks, AreRoundAndWithinTheRange) {
  EXPECT_EQ(ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ticks(0.3, 2.4, 5), (std::vector<double>{0.5, 1, 1.5, 2}));
  EXPECT_EQ(ticks(-7, 1203, 6), (std::vector<double>{0, 500, 1000}));
  for (const double size : {1e-9, 3e-4, 0.7, 55.0, 8e11}) {
    const auto found = ticks(size, 2 * size, 6);
    EXPECT_GE(found.size(), 3u) << size;
    EXPECT_LE(found.size(), 9u) << size;
    EXPECT_GE(found.front(), size * (1 - 1e-6));
    EXPECT_LE(found.back(), 2 * size * (1 + 1e-6));
  }
}

TEST(ShownRange, ExcludesOutliersAndIsNeverEmpty) {
  std::vector<double> values(100);
  std::ranges::generate(values, [next = 1.99]() mutable { return next += 0.01; });
  const auto [low, high] = shown_range(values);
  EXPECT_LT(low, 2);
  EXPECT_GT(high, 2.99);
  values[50] = 1e6;
  values[60] = NAN;
  values[70] = -INFINITY;
  const auto [robust_low, robust_high] = shown_range(values);
  EXPECT_LT(robust_high, 3.1);
  EXPECT_GT(robust_low, 1.9);
  for (const auto& [a, b] : {shown_range({}), shown_range({0, 0}), shown_range({3}), shown_range({NAN, 1e9})})
    EXPECT_LT(a, b);
}

TEST(SvgOf, TickLabelsAreShortAndStepTicksAreIntegers) {
  const auto has = [](const std::string& svg, const std::string& tick) {
    EXPECT_NE(svg.find(">" + tick + "</text>"), std::string::npos) << tick;
  };
  PlottedRun run{.name = "r"};
  for (std::int64_t i = 1; i <= 250; ++i)
    run.steps.push_back({.step = 1000 * i, .loss = 0.01 * static_cast<double>(i), .grad_norm = 0, .lr = 3e-5});
  const std::string svg = svg_of({run});
  for (const char* tick : {"50k", "100k", "250k", "0.5", "2.5", "1e-5", "3e-5", "-1.0"}) has(svg, tick);
  const std::string small = svg_of({{.name = "r",
                                     .steps = {{.step = 1, .loss = 123456, .grad_norm = 1, .lr = 0},
                                               {.step = 3, .loss = 123458, .grad_norm = 2, .lr = 0}}}});
  for (const char* tick : {"1", "2", "3", "123457.5"}) has(small, tick);
  EXPECT_EQ(small.find(">1.5</text>"), small.rfind(">1.5</text>"));  // only the axis of the gradient norm has it
}

TEST(SvgOf, HasAPointForEachStepAndEachValidationLoss) {
  PlottedRun run{.name = "a<b>&\"\x01\xff.jsonl"};
  for (std::int64_t i = 1; i <= 30; ++i)
    run.steps.push_back({.step = i, .loss = 5.0 / static_cast<double>(i), .grad_norm = 1, .lr = 0.1});
  run.held_out = {{.step = 10, .loss = 1}, {.step = 20, .loss = NAN}, {.step = 30, .loss = 0.5}};
  const std::string one = svg_of({run});
  EXPECT_EQ(points_in(one), (std::vector<std::size_t>{30, 30, 30}));
  EXPECT_EQ(count(one, "class=\"held-out\""), 2u);
  test::expect_parts(one, {"a&lt;b&gt;&amp;\"\\x01\\xff.jsonl"});
  EXPECT_EQ(one.find("<script"), std::string::npos);
  EXPECT_EQ(points_in(svg_of({run, run})).size(), 6u);
}

TEST(SvgOf, ACurveHasAGapWhereAValueIsNotFinite) {
  PlottedRun run{.name = "r"};
  for (std::int64_t i = 1; i <= 10; ++i)
    run.steps.push_back({.step = i, .loss = i == 2 || i == 6 ? NAN : 1.0, .grad_norm = 1, .lr = 1});
  const std::string svg = svg_of({run});
  EXPECT_EQ(points_in(svg), (std::vector<std::size_t>{3, 4, 10, 10}));
  EXPECT_EQ(count(svg, "<circle"), 1u);  // step 1 stands alone
  test::expect_parts(svg, {"2 are not finite"});
}

TEST(SvgOf, ALongCurveIsThinnedAndASingleStepIsADot) {
  PlottedRun run{.name = "r"};
  for (std::int64_t i = 1; i <= 100000; ++i)
    run.steps.push_back({.step = i, .loss = 1 + 1e-5 * static_cast<double>(i % 7), .grad_norm = 1, .lr = 1});
  const std::vector<std::size_t> points = points_in(svg_of({run}));
  EXPECT_LE(points.at(0), 4000u);
  EXPECT_GE(points.at(0), 2000u);
  const std::string one = svg_of({{.name = "r", .steps = {{.step = 5, .loss = 1, .grad_norm = 1, .lr = 0}}}});
  EXPECT_EQ(points_in(one).size(), 0u);
  EXPECT_EQ(count(one, "<circle"), 3u);
}

}  // namespace
}  // namespace fsdp::report
