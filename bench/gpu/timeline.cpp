// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where the time of any CUDA program goes, by CUPTI's activity records; for machines on which Nsight Systems gives no
/// report. The driver loads it into the program: CUDA_INJECTION64_PATH=libtessera_timeline.so TIMELINE=FILE PROGRAM.
///
/// FILE has one JSON object per line, for queued work and for work of graphs separately: first the time in which the
/// device was busy, and the gaps between; then each kernel and kind of copy, the longest in sum first.
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t buffer_bytes = std::size_t{8} << 20;
constexpr std::uint64_t longest_gap = 1'000'000;  ///< nanoseconds; a longer one is a pause of the host
constexpr std::size_t printed_names = 40, printed_characters = 120;

/// Work of queues, or of graphs.
struct Work {
  struct Sum {
    std::int64_t calls = 0;
    std::uint64_t nanoseconds = 0;
  };
  std::map<std::string, Sum> by_name;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;  ///< begin and end, in nanoseconds

  template <class Record>
  void add(const std::string& name, const Record& record) {
    Sum& sum = by_name[name];
    ++sum.calls;
    sum.nanoseconds += record.end - record.start;
    spans.emplace_back(record.start, record.end);
  }
};

struct Timeline {
  std::mutex mutex;
  Work queued, graphs;
  std::FILE* file = nullptr;

  template <class Record>
  void add(const std::string& name, const Record& record) {
    (record.graphId == 0 ? queued : graphs).add(name, record);
  }
};

/// Never destroyed: CUPTI may still call when static objects are gone.
Timeline& timeline() {
  static auto* const one = new Timeline;
  return *one;
}

/// A kernel's name without its parameters, at most so many characters.
std::string readable(const char* mangled) {
  int failed = 0;
  char* const demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &failed);
  std::string name = failed == 0 ? demangled : mangled;
  std::free(demangled);
  const auto parameters = name.rfind('(');
  if (failed == 0 && parameters != std::string::npos && parameters > 0) name.resize(parameters);
  name.resize(std::min(name.size(), printed_characters));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '"' || c == '\\'; }, '\'');
  return name;
}

double milliseconds(std::uint64_t nanoseconds) { return 1e-6 * static_cast<double>(nanoseconds); }

void print(const char* kind, Work& work, std::FILE* file) {
  if (work.spans.empty()) return;
  std::sort(work.spans.begin(), work.spans.end());
  std::uint64_t busy = 0, gaps = 0, pauses = 0, until = work.spans.front().first;
  std::int64_t gap_count = 0;
  for (const auto& [begin, end] : work.spans) {
    if (begin > until) {
      const std::uint64_t gap = begin - until;
      (gap < longest_gap ? gaps : pauses) += gap;
      gap_count += gap < longest_gap ? 1 : 0;
    }
    busy += end > until ? end - std::max(begin, until) : 0;
    until = std::max(until, end);
  }
  std::fprintf(
      file,
      "{\"bench\": \"timeline, %s\", \"busy_ms\": %.3f, \"gaps\": %lld, \"gaps_ms\": %.3f, \"pauses_ms\": %.3f}\n",
      kind, milliseconds(busy), static_cast<long long>(gap_count), milliseconds(gaps), milliseconds(pauses));
  std::vector<std::pair<std::string, Work::Sum>> sums(work.by_name.begin(), work.by_name.end());
  std::stable_sort(sums.begin(), sums.end(),
                   [](const auto& a, const auto& b) { return a.second.nanoseconds > b.second.nanoseconds; });
  Work::Sum others;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto& [name, sum] = sums[i];
    if (i < printed_names) {
      std::fprintf(file, "{\"bench\": \"timeline, %s\", \"kernel\": \"%s\", \"calls\": %lld, \"sum_ms\": %.3f}\n", kind,
                   name.c_str(), static_cast<long long>(sum.calls), milliseconds(sum.nanoseconds));
    } else {
      others.calls += sum.calls;
      others.nanoseconds += sum.nanoseconds;
    }
  }
  if (others.calls > 0)
    std::fprintf(file, "{\"bench\": \"timeline, %s\", \"kernel\": \"others\", \"calls\": %lld, \"sum_ms\": %.3f}\n",
                 kind, static_cast<long long>(others.calls), milliseconds(others.nanoseconds));
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, buffer_bytes));
  *size = *buffer == nullptr ? 0 : buffer_bytes;
  *records = 0;
}

void CUPTIAPI read_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  const std::lock_guard lock(timeline().mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
      timeline().add(readable(kernel.name), kernel);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      const bool from_host = copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
      const bool to_host = copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
      timeline().add(from_host ? "copy from the host" : to_host ? "copy to the host" : "copy on the device", copy);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      timeline().add("memset", *reinterpret_cast<const CUpti_ActivityMemset4*>(record));
    }
  }
  std::free(buffer);
}

void finish() {
  if (timeline().file == nullptr) return;
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard lock(timeline().mutex);
  print("queued", timeline().queued, timeline().file);
  print("graphs", timeline().graphs, timeline().file);
  std::fclose(std::exchange(timeline().file, nullptr));
}

}  // namespace

/// Called by CUDA's driver when the program first uses it. Returns 1 as CUDA requires for success, else 0.
extern "C" int InitializeInjection() {
  const char* const path = std::getenv("TIMELINE");
  timeline().file = path == nullptr ? nullptr : std::fopen(path, "w");
  if (timeline().file == nullptr) {
    std::fprintf(stderr, "timeline: cannot write the file that TIMELINE specifies: %s\n",
                 path == nullptr ? "none" : path);
    return 0;
  }
  CUptiResult result = cuptiActivityRegisterCallbacks(give_buffer, read_buffer);
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET})
    if (result == CUPTI_SUCCESS) result = cuptiActivityEnable(kind);
  if (result != CUPTI_SUCCESS) {
    std::fprintf(stderr, "timeline: CUPTI refuses, with its error %d\n", static_cast<int>(result));
    return 0;
  }
  std::atexit(finish);
  return 1;
}
