// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tessera/fsdp/models/llama_config.hpp>
#include <tessera/trainer/report/matmul_peak.hpp>
#include <tessera/trainer/report/metrics.hpp>
#include "support/temporary_folder.hpp"

namespace fsdp::report {
namespace {

using nlohmann::json;

TEST(JsonLine, NumbersReadBackToTheSameValue) {
  StepRecord record{.step = 3, .loss = 5.545177444479562, .grad_norm = 1.0 / 3, .lr = 1e-3, .tokens = 99};
  record.peak_bytes = std::int64_t{1} << 40;
  const json object = json::parse(json_line(record));
  EXPECT_EQ(object.at("loss").get<double>(), record.loss);
  EXPECT_EQ(object.at("grad_norm").get<double>(), record.grad_norm);
  EXPECT_EQ(object.at("peak_bytes"), record.peak_bytes);
  EXPECT_TRUE(object.at("mfu").is_null());
}

TEST(JsonLine, ContainsTheFieldsOfARecordInOrder) {
  EXPECT_EQ(json_line(StepRecord{.loss_scale = 64, .skipped = true, .mfu = 0.5, .mfu_peak = "a peak"}),
            R"({"step":0,"loss":0.0,"grad_norm":0.0,"lr":0.0,"tokens":0,"tokens_per_second":0.0,"step_seconds":0.0,)"
            R"("peak_bytes":0,"tflops":0.0,"mfu":0.5,"mfu_peak":"a peak","loss_scale":64.0,"skipped":true})");
  EXPECT_EQ(json_line(StepRecord{
                .mfu_peak = "a peak",
                .groups = {{.name = "*.b", .lr = 0.5, .grad_norm = 2.0}, {.name = "c", .grad_norm = INFINITY}}}),
            R"({"step":0,"loss":0.0,"grad_norm":0.0,"lr":0.0,"tokens":0,"tokens_per_second":0.0,"step_seconds":0.0,)"
            R"("peak_bytes":0,"tflops":0.0,"mfu":null,"mfu_peak":"a peak",)"
            R"("groups":{"*.b":{"lr":0.5,"grad_norm":2.0},"c":{"grad_norm":"inf"}}})");
  EXPECT_EQ(json_line(StartRecord{.optimizer = "sgd", .constants = {{"momentum", 0.5}}, .pieces = 4}),
            R"({"event":"start","stack":"","model":"","sizes":{},"optimizer":{"name":"sgd","momentum":0.5},)"
            R"("parameters":0,"seed":0,"world":1,"threads":1,"instruction_set":"","first_step":1,"steps":0,)"
            R"("skipped_binary":0,"pieces":4})");
  EXPECT_EQ(json_line(ValidationRecord{.step = 2}),
            R"({"event":"validation","step":2,"validation_loss":0.0,"tokens":0})");
  EXPECT_EQ(json_line(SummaryRecord{.checkpoint = "a"}),
            R"({"event":"summary","steps":0,"loss":null,"validation_loss":null,"tokens":0,"seconds":0.0,)"
            R"("first_step_seconds":null,"step_seconds":null,"peak_bytes":0,"checkpoint":"a"})");
  const json timed = json::parse(json_line(SummaryRecord{.step = StepTimes{.all = 2, .collectives = 0.5},
                                                         .planned = StepTimes{.all = 1.75},
                                                         .straggler = Straggler{.rank = 3, .ratio = 2}}));
  EXPECT_EQ(timed.at("step_seconds"), 2);
  EXPECT_EQ(timed.at("collective_seconds"), 0.5);
  EXPECT_EQ(timed.at("planned_step_seconds"), 1.75);
  EXPECT_TRUE(timed.at("planned_collective_seconds").is_null());
  EXPECT_EQ(timed.at("straggler"), 3);
  EXPECT_EQ(json::parse(json_line(SummaryRecord{.first_step_seconds = 1.5})).at("first_step_seconds"), 1.5);
}

TEST(JsonLine, ContainsTheCollectivesThatRan) {
  comm::MeshTraffic traffic;
  traffic.world[comm::Op::all_gather] = {.calls = 2, .bytes = 96};
  traffic.world[comm::Op::barrier] = {.calls = 1};
  traffic.shard[comm::Op::reduce_scatter] = {.calls = 3, .bytes = std::int64_t{1} << 40};
  const json expected = json::parse(R"({"world":{"all_gather":{"calls":2,"bytes":96},"barrier":{"calls":1,"bytes":0}},)"
                                    R"("shard":{"reduce_scatter":{"calls":3,"bytes":1099511627776}}})");
  EXPECT_EQ(json::parse(json_line(StepRecord{.traffic = traffic})).at("traffic"), expected);
  EXPECT_EQ(json::parse(json_line(SummaryRecord{.traffic = traffic})).at("traffic"), expected);
}

TEST(JsonLine, NaNAndInfinitiesAreStrings) {
  const json object =
      json::parse(json_line(StepRecord{.loss = NAN, .grad_norm = -INFINITY, .lr = INFINITY, .mfu = NAN}));
  EXPECT_EQ(object.at("loss"), "nan");
  EXPECT_EQ(object.at("grad_norm"), "-inf");
  EXPECT_EQ(object.at("lr"), "inf");
  EXPECT_EQ(object.at("mfu"), "nan");
}

TEST(JsonLine, StartAndSummaryLinesContainTheEventAndItsFields) {
  const json start = json::parse(json_line(StartRecord{.stack = "fsdp2",
                                                       .model_name = "a\"b\xff\n",
                                                       .sizes = values_of(llama_preset("tiny")),
                                                       .seed = UINT64_MAX,
                                                       .world = 2,
                                                       .threads = 3}));
  EXPECT_EQ(start.at("event"), "start");
  EXPECT_EQ(start.at("seed"), UINT64_MAX);
  EXPECT_EQ(start.at("world"), 2);
  EXPECT_EQ(start.at("threads"), 3);
  EXPECT_EQ(start.at("sizes").at("layers"), 3);
  EXPECT_FALSE(start.contains("ranks_per_sequence"));
  EXPECT_EQ(json::parse(json_line(StartRecord{.ranks_per_sequence = 4})).at("ranks_per_sequence"), 4);
  EXPECT_EQ(json_line(SampleRecord{.step = 3, .prompt = "a", .text = "\n\xff"}),
            "{\"event\":\"sample\",\"step\":3,\"prompt\":\"a\",\"text\":\"\\n\xEF\xBF\xBD\"}");
  const json summary = json::parse(json_line(SummaryRecord{.validation_loss = 1.5, .tokens = 10}));
  EXPECT_EQ(summary.at("event"), "summary");
  EXPECT_EQ(summary.at("validation_loss"), 1.5);
  EXPECT_TRUE(json::parse(json_line(SummaryRecord())).at("validation_loss").is_null());
}

TEST(Metrics, AppendsAndFlushesLineByLine) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("m.jsonl", "{\"earlier\":1}\n");
  Metrics metrics(path);
  metrics.write(StepRecord{.step = 1});
  EXPECT_EQ(test::content_of(path), "{\"earlier\":1}\n" + json_line(StepRecord{.step = 1}) + "\n");
}

TEST(Metrics, WithoutAPathWriteNothingAndAnUnwritableOneIsAnError) {
  Metrics().write(StepRecord());
  const test::TemporaryFolder folder;
  const std::string path = folder.path() / "absent" / "m.jsonl";
  EXPECT_INPUT_ERROR(Metrics(path), "--metrics " + path + ": cannot be written: No such file");
}

/// Matrices with more elements than random numbers, and with fewer.
TEST(MatmulPeak, FillsMatricesWithDistinctNoise) {
  device::Ledger ledger;
  device::Cpu::Arena arena(ledger, 1 << 20);
  device::Cpu::Stream stream(arena, 1);
  for (const std::int64_t size : {7, 700}) {
    std::vector<float> memory(static_cast<std::size_t>(size * size), 7.0f);
    fill_with_noise<device::Cpu>(stream, Tensor<float>(memory.data(), {size, size}));
    EXPECT_TRUE(std::ranges::all_of(memory, [](float value) { return value >= -0.5f && value < 0.5f; }));
    EXPECT_EQ(std::ranges::adjacent_find(memory), memory.end());
    const std::set<float> first_row(memory.begin(), memory.begin() + size);
    EXPECT_EQ(first_row.size(), static_cast<std::size_t>(size));
    double sum = 0;
    for (const float value : memory) sum += static_cast<double>(value);
    EXPECT_NEAR(sum / static_cast<double>(memory.size()), 0, 0.2);
  }
}

}  // namespace
}  // namespace fsdp::report
