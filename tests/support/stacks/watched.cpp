// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <numeric>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/testing/memory_watch.hpp>

#include <support/stack_run.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

using testing::Moved;
using testing::Range;

/// Threads that records the buffers of gathers and reductions, and can skip reductions so that ranks keep their own
/// gradients.
class WatchedThreads : public comm::Threads<> {
 public:
  static constexpr std::string_view name = "watched threads";
  explicit WatchedThreads(comm::Threads<>&& inner) : comm::Threads<>(std::move(inner)) {}

  bool steps_on_own_gradients = false;
  Moved moved;

  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {
    remember(moved.gathered, segments);
    return comm::Threads<>::all_gather(segments);
  }
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write write) {
    remember(moved.reduced, segments);
    if (!steps_on_own_gradients) return comm::Threads<>::reduce_scatter<Wire>(segments, write);
    for (const auto& segment : segments) {
      std::int64_t begin = 0;
      for (int peer = 0; peer < rank(); ++peer) begin += segment.counts[static_cast<std::size_t>(peer)];
      std::copy_n(segment.full + begin, segment.counts[static_cast<std::size_t>(rank())], segment.local);
    }
    return {};
  }
  WatchedThreads split(int color) { return WatchedThreads(comm::Threads<>::split(color)); }

  template <class F>
  static int run(int ranks, const comm::Options& options, F f) {
    return comm::Threads<>::run(ranks, options, [&](comm::Threads<>& inner) {
      WatchedThreads watched(std::move(inner));
      f(watched);
    });
  }

 private:
  /// Records the buffers of a collective. Its event was recorded just before.
  template <class T>
  void remember(std::map<int, Range>& ranges, std::span<const comm::Segment<T>> segments) {
    const std::less<const void*> less;
    Range all;
    for (const auto& segment : segments) {
      const std::int64_t count = std::accumulate(segment.counts.begin(), segment.counts.end(), std::int64_t{0});
      const Range range = testing::range_of(segment.full, count);
      if (all.begin == nullptr || less(range.begin, all.begin)) all.begin = range.begin;
      if (all.end == nullptr || less(all.end, range.end)) all.end = range.end;
    }
    ranges[monitor().records.back().label.unit] = all;
  }
};

RunResults run_watched(const RunOptions& options) {
  return run_threads<Llama<Stack<FullyShard<>, WatchedThreads, Fp32, tiling::RunTimeTiling>>>(options);
}

}  // namespace fsdp::test
