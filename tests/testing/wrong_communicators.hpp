// SPDX-License-Identifier: Apache-2.0
/// @file
/// Communicators with one flaw each, which is selected at run time. All use Threads to move bytes and corrupt its
/// result. One with flawed requests is in wrong_requests.hpp.
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

#include <tessera/comm/threads.hpp>

namespace fsdp::testing {

enum class CommFlaw : std::uint8_t {
  none,
  sums_from_the_last_rank,      ///< correct communicators sum from the first
  adds_their_sum,               ///< sums the contributions first and then adds the sum to the existing value
  keeps_its_own_order,          ///< starts the sums of each rank with the contribution of the next, like a ring
  drops_empty_pieces,           ///< a rank that contributes nothing receives nothing
  moves_one_segment,            ///< moves only the first segment of a list
  mislays_pieces_in_place,      ///< sends an in-place piece from the beginning of `full` instead of its offset
  never_accumulates,            ///< sums always overwrite
  sums_all_of_full,             ///< implements reduce_scatter by all_reduce if segments are in place
  forgets_to_gather_sums,       ///< all_reduce only does the reduce-scatter and omits the all-gather
  stops_at_its_scratch,         ///< sums only as many elements as fit into its scratch
  broadcasts_from_rank_zero,    ///< whatever the root
  gathers_own_bytes,            ///< and therefore does not detect ranks that disagree
  turns_parts_round,            ///< parts of a split have their ranks in descending order
  drops_the_rest_of_a_message,  ///< drops data beyond the first message
  forgets_its_monitor,          ///< returns a monitor that is reset in every call
  names_nobody,                 ///< errors do not report the failed rank
  has_no_patience,              ///< fails immediately if a rank is missing instead of waiting for the deadline
  reports_no_failure,           ///< `run` reports success although a rank failed
  runs_one_rank,                ///< `run` starts one rank for any requested number
  runs_nothing,
  drops_pieces_of_the_silent,     ///< a rank that sends nothing receives nothing
  exchanges_one_tensor,           ///< exchanges only the first tensor of a list
  exchanges_when_it_is_too_late,  ///< does not copy the results of an exchange to `receive`
  completes_early,                ///< requests: only the destructor waits
  lets_go_too_early,          ///< a rank that has read its peers continues although they may not have read its data yet
  forgets_unwaited_requests,  ///< a request without a wait leaves `full` unchanged
};
/// The flaw of Wrong, WrongExchanges and WrongRequests. Set it while no rank runs.
inline CommFlaw comm_flaw = CommFlaw::none;

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

  Threads threads_;
};

struct Right : OverThreads<Right> {
  using OverThreads::OverThreads;
};

/// A communicator with the flaw `comm_flaw`. It ignores the order of sums that the caller requests.
template <class Own>
struct Flawed : OverThreads<Own> {
  using Base = OverThreads<Own>;
  using Base::Base, Base::size, Base::threads_, Base::total, Base::own_begin, Base::own_count;
  using typename Base::Request, typename Base::Threads;

  template <class F>
  static int run(int ranks, const comm::Options& options, F f) {
    if (comm_flaw == CommFlaw::runs_nothing) return 0;
    try {
      return Base::run(comm_flaw == CommFlaw::runs_one_rank ? 1 : ranks, options, f);
    } catch (const std::exception&) {
      if (comm_flaw != CommFlaw::reports_no_failure) throw;
      return 0;
    }
  }

  int rank() const { return turned ? size() - 1 - threads_.rank() : threads_.rank(); }
  Own split(int color) {
    Own part(threads_.split(color));
    part.turned = comm_flaw == CommFlaw::turns_parts_round;
    return part;
  }
  comm::Monitor& monitor() {
    if (comm_flaw != CommFlaw::forgets_its_monitor) return threads_.monitor();
    forgotten.options = threads_.monitor().options;
    forgotten.options.before = nullptr;
    return forgotten;
  }

  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {
    if (comm_flaw == CommFlaw::moves_one_segment) segments = segments.first(std::min<std::size_t>(segments.size(), 1));
    const bool mislays = comm_flaw == CommFlaw::mislays_pieces_in_place;
    const bool drops_empty = comm_flaw == CommFlaw::drops_empty_pieces;
    const bool cuts = comm_flaw == CommFlaw::drops_the_rest_of_a_message;
    if (!mislays && !drops_empty && !cuts) return threads_.all_gather(segments);
    std::vector<comm::Segment<T>> given(segments.begin(), segments.end());
    for (comm::Segment<T>& segment : given)
      if (mislays && segment.local == segment.full + own_begin(segment.counts)) segment.local = segment.full;
    const auto results = this->gathered(std::span<const comm::Segment<T>>(given));
    for (std::size_t i = 0; i < results.size(); ++i)
      if (!drops_empty || own_count(segments[i].counts) > 0) copy_result(results[i], cuts, segments[i].full);
    return {};
  }
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write write, comm::Contributions = {},
                         comm::SumOrder = {}) {
    switch (comm_flaw) {
      case CommFlaw::sums_from_the_last_rank:
      case CommFlaw::keeps_its_own_order:
        for (const comm::Segment<float>& segment : segments)
          sum<Wire>(segment, own_begin(segment.counts), own_count(segment.counts), write, segment.local);
        return {};
      case CommFlaw::adds_their_sum: return add_sums<Wire>(segments, write);
      case CommFlaw::stops_at_its_scratch: return sum_within_scratch<Wire>(segments, write);
      case CommFlaw::never_accumulates: return threads_.template reduce_scatter<Wire>(segments, Write::overwrite);
      case CommFlaw::sums_all_of_full:
        if (in_place(segments)) return threads_.template all_reduce<Wire>(segments);
        [[fallthrough]];
      default: return threads_.template reduce_scatter<Wire>(segments, write);
    }
  }
  template <class Wire>
  Request all_reduce(std::span<const comm::Segment<float>> segments) {
    if (comm_flaw == CommFlaw::forgets_to_gather_sums)
      return threads_.template reduce_scatter<Wire>(segments, Write::overwrite);
    if (comm_flaw != CommFlaw::sums_from_the_last_rank) return threads_.template all_reduce<Wire>(segments);
    for (const comm::Segment<float>& segment : segments)
      sum<Wire>(segment, 0, total(segment.counts), Write::overwrite, segment.full);
    return {};
  }
  template <class T>
  void reduce(std::span<T> values, comm::Reduction reduction) {
    if (comm_flaw != CommFlaw::sums_from_the_last_rank || reduction != comm::Reduction::sum)
      return threads_.reduce(values, reduction);
    std::vector<T> all(values.size() * static_cast<std::size_t>(size()));
    threads_.gather_bytes(std::as_bytes(values), std::as_writable_bytes(std::span(all)));
    std::ranges::fill(values, T{0});
    for (std::size_t at = all.size(); at-- > 0;) values[at % values.size()] += all[at];
  }
  void broadcast(std::span<std::byte> bytes, int root) {
    threads_.broadcast(bytes, comm_flaw == CommFlaw::broadcasts_from_rank_zero ? 0 : root);
  }
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) {
    if (comm_flaw != CommFlaw::gathers_own_bytes) return threads_.gather_bytes(mine, all);
    for (std::size_t at = 0; at < all.size(); at += mine.size()) std::ranges::copy(mine, all.begin() + at);
  }
  void barrier() {
    if (comm_flaw == CommFlaw::has_no_patience) throw comm::CollectiveError("rank 1 is not there");
    nameless([&] { threads_.barrier(); });
  }

  bool turned = false;
  comm::Monitor forgotten;

 protected:
  /// Copies the result of a collective, or what fits into its first message.
  template <class T>
  void copy_result(const std::vector<T>& result, bool cut, T* to) {
    const auto most = static_cast<std::size_t>(threads_.monitor().options.message_bytes) / sizeof(T);
    std::copy_n(result.begin(), cut ? std::min(result.size(), most) : result.size(), to);
  }
  static void nameless(auto call) {
    try {
      call();
    } catch (const comm::CollectiveError&) {
      if (comm_flaw == CommFlaw::names_nobody) throw comm::CollectiveError("a collective failed");
      throw;
    }
  }

 private:
  bool in_place(std::span<const comm::Segment<float>> segments) const {
    for (const comm::Segment<float>& segment : segments)
      if (segment.local != segment.full + own_begin(segment.counts)) return false;
    return true;
  }
  /// Sums elements [begin, begin + count) of `full` into `to`, in a wrong order of ranks.
  template <class Wire>
  void sum(const comm::Segment<float>& segment, std::int64_t begin, std::int64_t count, Write write, float* to) {
    const std::int64_t each = total(segment.counts);
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), each);
    std::vector<float> all(static_cast<std::size_t>(each * size()));
    const comm::Segment<float> whole{segment.full, all.data(), counts};
    threads_.all_gather(std::span(&whole, 1)).wait();
    for (std::int64_t i = 0; i < count; ++i) {
      float sum = write == Write::accumulate ? to[i] : 0.0f;
      for (int step = 1; step <= size(); ++step) {
        const int peer = comm_flaw == CommFlaw::keeps_its_own_order ? (rank() + step) % size() : size() - step;
        sum += static_cast<float>(Wire(all[static_cast<std::size_t>(peer * each + begin + i)]));
      }
      to[i] = sum;
    }
  }
  template <class Wire>
  Request add_sums(std::span<const comm::Segment<float>> segments, Write write) {
    if (write == Write::overwrite) return threads_.template reduce_scatter<Wire>(segments, write);
    for (const comm::Segment<float>& segment : segments) {
      std::vector<float> sum(static_cast<std::size_t>(own_count(segment.counts)));
      const comm::Segment<float> apart{sum.data(), segment.full, segment.counts};
      threads_.template reduce_scatter<Wire>(std::span(&apart, 1), Write::overwrite).wait();
      std::transform(sum.begin(), sum.end(), segment.local, segment.local, std::plus<>());
    }
    return {};
  }
  template <class Wire>
  Request sum_within_scratch(std::span<const comm::Segment<float>> segments, Write write) {
    constexpr std::int64_t most = 1 << 18;
    std::vector<std::vector<float>> kept;
    for (const comm::Segment<float>& segment : segments)
      kept.emplace_back(segment.local, segment.local + own_count(segment.counts));
    threads_.template reduce_scatter<Wire>(segments, write).wait();
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (std::ssize(kept[i]) > most) std::copy(kept[i].begin() + most, kept[i].end(), segments[i].local + most);
    return {};
  }
};

struct Wrong : Flawed<Wrong> {
  using Flawed::Flawed;
};

/// A communicator that also exchanges pieces.
struct WrongExchanges : Flawed<WrongExchanges> {
  using Flawed::Flawed;

  template <class T>
  Request all_to_all(std::span<const comm::Exchange<T>> exchanges) {
    if (comm_flaw == CommFlaw::exchanges_one_tensor)
      exchanges = exchanges.first(std::min<std::size_t>(exchanges.size(), 1));
    const bool late = comm_flaw == CommFlaw::exchanges_when_it_is_too_late;
    const bool drops_silent = comm_flaw == CommFlaw::drops_pieces_of_the_silent;
    const bool cuts = comm_flaw == CommFlaw::drops_the_rest_of_a_message;
    if (comm_flaw == CommFlaw::names_nobody) {
      nameless([&] { threads_.all_to_all(exchanges).wait(); });
      return {};
    }
    if (!late && !drops_silent && !cuts) return threads_.all_to_all(exchanges);
    const auto results = exchanged(exchanges);
    for (std::size_t i = 0; i < results.size() && !late; ++i)
      if (!drops_silent || total(exchanges[i].send_counts) > 0) copy_result(results[i], cuts, exchanges[i].receive);
    return {};
  }

 private:
  /// Returns the results of an all_to_all in separate buffers instead of in each `receive`.
  template <class T>
  std::vector<std::vector<T>> exchanged(std::span<const comm::Exchange<T>> exchanges) {
    std::vector<std::vector<T>> results;
    std::vector<comm::Exchange<T>> apart(exchanges.begin(), exchanges.end());
    for (comm::Exchange<T>& exchange : apart) {
      const std::int64_t count = total(exchange.receive_counts);
      exchange.receive = results.emplace_back(static_cast<std::size_t>(count + 1)).data();  // never without an address
    }
    threads_.all_to_all(std::span<const comm::Exchange<T>>(apart)).wait();
    for (std::vector<T>& result : results) result.pop_back();
    return results;
  }
};

}  // namespace fsdp::testing
