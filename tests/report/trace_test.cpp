// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/trace.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::report {
namespace {

using nlohmann::json;

TEST(TraceJson, HasTheChromeTraceFormat) {
  const json trace = json::parse(trace_json({{.name = "gather \"1\"",
                                              .category = "comm",
                                              .begin_microseconds = 10.5,
                                              .duration_microseconds = 2,
                                              .rank = 3,
                                              .lane = 1}}));
  const json& events = trace.at("traceEvents");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].at("args").at("name"), "rank 3");
  EXPECT_EQ(events[1],
            json::parse(R"({"name":"gather \"1\"","cat":"comm","ph":"X","ts":10.5,"dur":2.0,"pid":3,"tid":1})"));
  EXPECT_TRUE(json::parse(trace_json({})).at("traceEvents").empty());
}

TEST(TraceJson, ShowsMemoryAsACounter) {
  device::BytesByKind held{};
  held[static_cast<std::size_t>(device::MemoryKind::weights)] = 7;
  held[static_cast<std::size_t>(device::MemoryKind::activations)] = 100;
  const json trace = json::parse(trace_json({memory_event(held, 30, 2, 1.5)}, {"compute"}));
  const json& events = trace.at("traceEvents");
  ASSERT_EQ(events.size(), 2u) << "no lane";
  EXPECT_EQ(events[1].at("ph"), "C");
  EXPECT_EQ(events[1].at("ts"), 1.5e6);
  EXPECT_EQ(events[1].at("args").at("weights"), 7);
  EXPECT_EQ(events[1].at("args").at("activations"), 30) << "those in use, not those that there is memory for";
}

TEST(TraceJson, WritesNamesOfUsedLanesOnly) {
  const json trace = json::parse(trace_json({{.name = "forward 0", .rank = 1, .lane = 0}, {.name = "late", .lane = 7}},
                                            {"compute", "communication"}));
  std::vector<json> lanes;
  for (const json& event : trace.at("traceEvents"))
    if (event.at("name") == "thread_name") lanes.push_back(event);
  ASSERT_EQ(lanes.size(), 1u) << trace;
  EXPECT_EQ(lanes.front().at("pid"), 1);
  EXPECT_EQ(lanes.front().at("tid"), 0);
  EXPECT_EQ(lanes.front().at("args").at("name"), "compute");
}

TEST(Trace, CollectsFromAllThreads) {
  const test::TemporaryFolder folder;
  Trace trace(folder.path() / "t.json");
  std::vector<std::thread> threads;
  for (const std::int64_t rank : {0, 1, 2})
    threads.emplace_back([&trace, rank] {
      for (int i = 0; i < 100; ++i) trace.add({.name = "x", .category = "compute", .rank = rank});
    });
  for (std::thread& thread : threads) thread.join();
  trace.write();
  EXPECT_EQ(json::parse(test::content_of(folder.path() / "t.json")).at("traceEvents").size(), 306u)
      << "a name of each rank and of its lane";
}

TEST(Trace, IsRenamedIntoPlaceWhenComplete) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("t.json", "an earlier trace");
  const auto names = [&] {
    std::vector<std::string> list;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      list.push_back(entry.path().filename());
    return list;
  };
  Trace trace(path);
  trace.add({.name = "x"});
  EXPECT_EQ(test::content_of(path), "an earlier trace");
  EXPECT_EQ(names(), std::vector<std::string>{"t.json"});
  std::filesystem::create_directory(folder.path() / "t.json.part");  // obstructs the temporary file
  EXPECT_INPUT_ERROR(trace.write(), "--trace " + (folder.path() / "t.json.part").string() + ": cannot be created");
  EXPECT_EQ(test::content_of(path), "an earlier trace");
  std::filesystem::remove(folder.path() / "t.json.part");
  trace.write();
  EXPECT_EQ(json::parse(test::content_of(path)).at("traceEvents").size(), 3u);
  EXPECT_EQ(names(), std::vector<std::string>{"t.json"});
}

TEST(Trace, FollowsSymbolicLinksAndWritesDirectlyToDevices) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("t.json", "");
  std::filesystem::create_symlink("t.json", folder.path() / "link");
  Trace(folder.path() / "link").write();
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path() / "link"));
  EXPECT_TRUE(json::parse(test::content_of(path)).contains("traceEvents"));
  Trace("/dev/null").write();
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(Trace, IsOffWithoutAPathAndAnUnwritablePathIsAnInputError) {
  Trace off;
  EXPECT_FALSE(off.on());
  off.add({});
  off.write();
  const test::TemporaryFolder folder;
  const std::string path = folder.path() / "absent" / "t.json";
  EXPECT_INPUT_ERROR(Trace(path), "--trace " + path);
  EXPECT_EQ(trace_path("a/t.json", 0), "a/t.json");
  EXPECT_EQ(trace_path("a/t.json", 3), "a/t.rank3.json");
}

}  // namespace
}  // namespace fsdp::report
