// SPDX-License-Identifier: Apache-2.0
/// bench/gpu/timeline.cpp on a fake of CUPTI, which delivers a few records when it is flushed.
#if __has_include(<cupti.h>)
#include "../../bench/gpu/timeline.cpp"

#include <cstddef>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

namespace {

std::vector<CUpti_ActivityKernel10> kernels;
CUpti_ActivityMemcpy6 copy_to_host;
CUpti_BuffersCallbackCompleteFunc completed = nullptr;
CUpti_BuffersCallbackRequestFunc requested = nullptr;
std::size_t delivered = 0;

CUpti_ActivityKernel10 kernel(const char* name, std::uint64_t start, std::uint64_t end, std::uint32_t graph) {
  CUpti_ActivityKernel10 made{};
  made.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  made.name = name;
  made.start = start;
  made.end = end;
  made.graphId = graph;
  return made;
}

}  // namespace

extern "C" {
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc give,
                                           CUpti_BuffersCallbackCompleteFunc read) {
  requested = give;
  completed = read;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityGetNextRecord(std::uint8_t*, std::size_t, CUpti_Activity** record) {
  if (delivered > kernels.size()) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = delivered < kernels.size() ? reinterpret_cast<CUpti_Activity*>(&kernels[delivered])
                                       : reinterpret_cast<CUpti_Activity*>(&copy_to_host);
  ++delivered;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0, records = 0;
  requested(&buffer, &size, &records);
  completed(nullptr, 0, buffer, size, size);
  return CUPTI_SUCCESS;
}
}

TEST(CudaHost_timeline, SumsKernelsAndGapsOfQueuedWorkAndOfGraphs) {
  kernels = {kernel("_Z3addPfi", 1'000'000, 2'000'000, 0), kernel("_Z3addPfi", 1'500'000, 3'000'000, 0),
             kernel("mul", 3'250'000, 3'500'000, 0), kernel("mul", 9'000'000, 9'500'000, 0),
             kernel("mul", 1'000, 2'000, 7)};
  copy_to_host.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy_to_host.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
  copy_to_host.start = 9'500'000;
  copy_to_host.end = 9'600'000;
  const std::string path = testing::TempDir() + "timeline.jsonl";
  ASSERT_EQ(setenv("TIMELINE", path.c_str(), 1), 0);
  ASSERT_EQ(InitializeInjection(), 1);
  finish();
  std::stringstream written;
  written << std::ifstream(path).rdbuf();
  EXPECT_EQ(written.str(),
            R"({"bench": "timeline, queued", "busy_ms": 2.850, "gaps": 1, "gaps_ms": 0.250, "pauses_ms": 5.500}
{"bench": "timeline, queued", "kernel": "add", "calls": 2, "sum_ms": 2.500}
{"bench": "timeline, queued", "kernel": "mul", "calls": 2, "sum_ms": 0.750}
{"bench": "timeline, queued", "kernel": "copy to the host", "calls": 1, "sum_ms": 0.100}
{"bench": "timeline, graphs", "busy_ms": 0.001, "gaps": 0, "gaps_ms": 0.000, "pauses_ms": 0.000}
{"bench": "timeline, graphs", "kernel": "mul", "calls": 1, "sum_ms": 0.001}
)");
}
#else
#include <gtest/gtest.h>
TEST(CudaHost_timeline, NeedsCupti) { GTEST_SKIP() << "cupti.h is not found"; }
#endif
