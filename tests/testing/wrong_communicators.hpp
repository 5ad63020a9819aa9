// SPDX-License-Identifier: Apache-2.0
/// @file
/// Communicators with one flaw each. All use Threads to move bytes and corrupt its result.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <range/v3/view/zip.hpp>

#include <tessera/comm/threads.hpp>

namespace fsdp::testing {

/// A correct communicator. A flawed one derives from it with its own type as Own and hides the functions that it
/// changes.
template <class Own>
class OverThreads {
 public:
  using Threads = comm::Threads<>;
  using Device = Threads::Device;
  using Request = Threads::Request;

  explicit OverThreads(Threads threads) : threads_(std::move(threads)) {}

  template <class F>
  static int run(int ranks, const comm::Options& options, F f) {
    return Threads::run(ranks, options, [&f](Threads& threads) {
      Own communicator(std::move(threads));
      f(communicator);
    });
  }

  int rank() const { return threads_.rank(); }
  int size() const { return threads_.size(); }
  comm::Monitor& monitor() { return threads_.monitor(); }
  Own split(int color) { return Own(threads_.split(color)); }

  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {
    return threads_.all_gather(segments);
  }
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write write) {
    return threads_.reduce_scatter<Wire>(segments, write);
  }
  template <class Wire>
  Request all_reduce(std::span<const comm::Segment<float>> segments) {
    return threads_.all_reduce<Wire>(segments);
  }
  template <class T>
  void reduce(std::span<T> values, comm::Reduction reduction) {
    threads_.reduce(values, reduction);
  }
  void broadcast(std::span<std::byte> bytes, int root) { threads_.broadcast(bytes, root); }
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) { threads_.gather_bytes(mine, all); }
  void barrier() { threads_.barrier(); }

 protected:
  static std::int64_t total(std::span<const std::int64_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  }
  std::int64_t own_begin(std::span<const std::int64_t> counts) const {
    return total(counts.first(static_cast<std::size_t>(rank())));
  }
  std::int64_t own_count(std::span<const std::int64_t> counts) const {
    return counts[static_cast<std::size_t>(rank())];
  }

  /// Returns the results of an all_gather in separate buffers instead of in each `full`.
  template <class T>
  std::vector<std::vector<T>> gathered(std::span<const comm::Segment<T>> segments) {
    std::vector<std::vector<T>> results;
    std::vector<comm::Segment<T>> apart;
    for (const comm::Segment<T>& segment : segments) {
      results.emplace_back(static_cast<std::size_t>(total(segment.counts)));
      apart.push_back({segment.local, results.back().data(), segment.counts});
    }
    threads_.all_gather(std::span<const comm::Segment<T>>(apart)).wait();
    return results;
  }

  /// Calls f(element, contributions), in the order of ranks, for elements [begin, begin + count) of `full`.
  void each_sum(const comm::Segment<float>& segment, std::int64_t begin, std::int64_t count, auto f) {
    const std::int64_t each = total(segment.counts);
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), each);
    std::vector<float> all(static_cast<std::size_t>(each * size())), contributions(counts.size());
    const comm::Segment<float> whole{segment.full, all.data(), counts};
    threads_.all_gather(std::span(&whole, 1)).wait();
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::size_t peer = 0; peer < contributions.size(); ++peer)
        contributions[peer] = all[peer * static_cast<std::size_t>(each) + static_cast<std::size_t>(begin + i)];
      f(i, std::as_const(contributions));
    }
  }
  static void gather_own(std::span<const std::byte> mine, std::span<std::byte> all) {
    for (std::size_t at = 0; at < all.size(); at += mine.size()) std::ranges::copy(mine, all.begin() + at);
  }
  static void nameless(auto call) {
    try {
      call();
    } catch (const comm::CollectiveError&) {
      throw comm::CollectiveError("a collective failed");
    }
  }

  Threads threads_;
};

struct Right : OverThreads<Right> {
  using OverThreads::OverThreads;
};

/// Sums from the last rank to the first; correct communicators sum from the first.
struct SumsFromTheLastRank : OverThreads<SumsFromTheLastRank> {
  using OverThreads::OverThreads;
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write write) {
    for (const comm::Segment<float>& segment : segments)
      each_sum(segment, own_begin(segment.counts), own_count(segment.counts), [&](std::int64_t i, const auto& values) {
        const float sum = std::accumulate(values.rbegin(), values.rend(), 0.0f);
        segment.local[i] = write == Write::overwrite ? sum : segment.local[i] + sum;
      });
    return {};
  }
  template <class Wire>
  Request all_reduce(std::span<const comm::Segment<float>> segments) {
    for (const comm::Segment<float>& segment : segments)
      each_sum(segment, 0, total(segment.counts), [&](std::int64_t i, const auto& values) {
        segment.full[i] = std::accumulate(values.rbegin(), values.rend(), 0.0f);
      });
    return {};
  }
  void reduce(std::span<std::int64_t> values, comm::Reduction reduction) { threads_.reduce(values, reduction); }
  void reduce(std::span<double> values, comm::Reduction reduction) {
    if (reduction != comm::Reduction::sum) return threads_.reduce(values, reduction);
    std::vector<double> all(values.size() * static_cast<std::size_t>(size()));
    threads_.gather_bytes(std::as_bytes(values), std::as_writable_bytes(std::span(all)));
    std::ranges::fill(values, 0);
    for (std::size_t at = all.size(); at-- > 0;) values[at % values.size()] += all[at];
  }
};

/// Sums the contributions first and then adds the sum to the existing value.
struct AddsTheirSum : OverThreads<AddsTheirSum> {
  using OverThreads::OverThreads;
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write write) {
    if (write == Write::overwrite) return threads_.reduce_scatter<Wire>(segments, write);
    for (const comm::Segment<float>& segment : segments) {
      std::vector<float> sum(static_cast<std::size_t>(own_count(segment.counts)));
      const comm::Segment<float> apart{sum.data(), segment.full, segment.counts};
      threads_.reduce_scatter<Wire>(std::span(&apart, 1), Write::overwrite).wait();
      std::transform(sum.begin(), sum.end(), segment.local, segment.local, std::plus<>());
    }
    return {};
  }
};

/// Starts the sums of each rank with the contribution of the next rank, like a ring, and ignores the requested order.
struct KeepsItsOwnOrder : OverThreads<KeepsItsOwnOrder> {
  using OverThreads::OverThreads;
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write write, comm::Contributions = {},
                         comm::SumOrder = {}) {
    for (const comm::Segment<float>& segment : segments)
      each_sum(segment, own_begin(segment.counts), own_count(segment.counts), [&](std::int64_t i, const auto& values) {
        float sum = write == Write::accumulate ? segment.local[i] : 0.0f;
        for (int step = 1; step <= size(); ++step)
          sum += static_cast<float>(Wire(values[static_cast<std::size_t>((rank() + step) % size())]));
        segment.local[i] = sum;
      });
    return {};
  }
};

/// A rank that contributes nothing receives nothing.
struct DropsEmptyPieces : OverThreads<DropsEmptyPieces> {
  using OverThreads::OverThreads;
  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {
    const auto results = gathered(segments);
    for (const auto& [segment, result] : ranges::views::zip(segments, results))
      if (own_count(segment.counts) > 0) std::ranges::copy(result, segment.full);
    return {};
  }
};

/// Moves only the first segment of a list.
struct MovesOneSegment : OverThreads<MovesOneSegment> {
  using OverThreads::OverThreads;
  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {
    return threads_.all_gather(segments.first(std::min<std::size_t>(segments.size(), 1)));
  }
};

/// Sends an in-place piece from the beginning of `full` instead of its offset.
struct MislaysPiecesInPlace : OverThreads<MislaysPiecesInPlace> {
  using OverThreads::OverThreads;
  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {
    std::vector<comm::Segment<T>> mislaid(segments.begin(), segments.end());
    for (comm::Segment<T>& segment : mislaid)
      if (segment.local == segment.full + own_begin(segment.counts)) segment.local = segment.full;
    const auto results = gathered(std::span<const comm::Segment<T>>(mislaid));
    for (const auto& [segment, result] : ranges::views::zip(segments, results)) std::ranges::copy(result, segment.full);
    return {};
  }
};

/// Never accumulates: sums always overwrite.
struct NeverAccumulates : OverThreads<NeverAccumulates> {
  using OverThreads::OverThreads;
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write) {
    return threads_.reduce_scatter<Wire>(segments, Write::overwrite);
  }
};

/// Implements reduce_scatter by all_reduce if segments are in place.
struct SumsAllOfFull : OverThreads<SumsAllOfFull> {
  using OverThreads::OverThreads;
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write write) {
    for (const comm::Segment<float>& segment : segments)
      if (segment.local != segment.full + own_begin(segment.counts))
        return threads_.reduce_scatter<Wire>(segments, write);
    return threads_.all_reduce<Wire>(segments);
  }
};

/// all_reduce only does the reduce-scatter and omits the all-gather.
struct ForgetsToGatherSums : OverThreads<ForgetsToGatherSums> {
  using OverThreads::OverThreads;
  template <class Wire>
  Request all_reduce(std::span<const comm::Segment<float>> segments) {
    return threads_.reduce_scatter<Wire>(segments, Write::overwrite);
  }
};

/// Sums only as many elements as fit into its scratch.
struct StopsAtItsScratch : OverThreads<StopsAtItsScratch> {
  using OverThreads::OverThreads;
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write write) {
    constexpr std::int64_t most = 1 << 18;
    std::vector<std::vector<float>> kept;
    for (const comm::Segment<float>& segment : segments)
      kept.emplace_back(segment.local, segment.local + own_count(segment.counts));
    threads_.reduce_scatter<Wire>(segments, write).wait();
    for (const auto& [segment, before] : ranges::views::zip(segments, kept))
      if (own_count(segment.counts) > most) std::copy(before.begin() + most, before.end(), segment.local + most);
    return {};
  }
};

struct BroadcastsFromRankZero : OverThreads<BroadcastsFromRankZero> {
  using OverThreads::OverThreads;
  void broadcast(std::span<std::byte> bytes, int) { threads_.broadcast(bytes, 0); }
};

/// Gathers only its own bytes.
struct GathersOwnBytes : OverThreads<GathersOwnBytes> {
  using OverThreads::OverThreads;
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) { gather_own(mine, all); }
};

/// Parts of a split have their ranks in descending order.
struct TurnsPartsRound : OverThreads<TurnsPartsRound> {
  using OverThreads::OverThreads;
  int rank() const { return turned ? size() - 1 - threads_.rank() : threads_.rank(); }
  TurnsPartsRound split(int color) {
    TurnsPartsRound part(threads_.split(color));
    part.turned = true;
    return part;
  }
  bool turned = false;
};

/// Drops data beyond the first message.
struct DropsTheRestOfAMessage : OverThreads<DropsTheRestOfAMessage> {
  using OverThreads::OverThreads;
  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {
    const auto results = gathered(segments);
    const auto most = static_cast<std::size_t>(monitor().options.message_bytes) / sizeof(T);
    for (const auto& [segment, result] : ranges::views::zip(segments, results))
      std::copy_n(result.begin(), std::min(result.size(), most), segment.full);
    return {};
  }
};

/// Returns a monitor that is reset in every call.
struct ForgetsItsMonitor : OverThreads<ForgetsItsMonitor> {
  using OverThreads::OverThreads;
  comm::Monitor& monitor() {
    forgotten_.options = threads_.monitor().options;
    forgotten_.options.before = nullptr;
    return forgotten_;
  }

 private:
  comm::Monitor forgotten_;
};

/// Errors do not report the failed rank.
struct NamesNobody : OverThreads<NamesNobody> {
  using OverThreads::OverThreads;
  void barrier() {
    nameless([&] { threads_.barrier(); });
  }
};

/// `run` reports success although a rank failed.
struct ReportsNoFailure : OverThreads<ReportsNoFailure> {
  using OverThreads::OverThreads;
  template <class F>
  static int run(int ranks, const comm::Options& options, F f) {
    try {
      return OverThreads::run(ranks, options, f);
    } catch (const std::exception&) {
      return 0;
    }
  }
};

/// `run` starts one rank for any requested number.
struct RunsOneRank : OverThreads<RunsOneRank> {
  using OverThreads::OverThreads;
  template <class F>
  static int run(int, const comm::Options& options, F f) {
    return OverThreads::run(1, options, f);
  }
};

struct RunsNothing : OverThreads<RunsNothing> {
  using OverThreads::OverThreads;
  template <class F>
  static int run(int, const comm::Options&, F) {
    return 0;
  }
};

/// Fails immediately if a rank is missing instead of waiting for the deadline.
struct HasNoPatience : OverThreads<HasNoPatience> {
  using OverThreads::OverThreads;
  void barrier() { throw comm::CollectiveError("rank 1 is not there"); }
};

}  // namespace fsdp::testing
