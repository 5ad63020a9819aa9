// SPDX-License-Identifier: Apache-2.0
/// @file
/// Required behaviour of communicators, part one: gathers and reductions of tensors. exchange_behaviours.hpp has
/// exchanges, contract_behaviours.hpp the rest.
///
/// A behaviour is a struct with `asked` (the sentence that a failure prints) and `check(communicator)`, which is called
/// on every rank at once. To add one, add a struct to one of the headers, list it in AllBehaviours and in
/// communicator.hpp, and add one that fails it to tests/testing (wrong_communicators.hpp and its like).
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/values.hpp>

namespace fsdp::testing {

/// The narrowest wire type that communicator C can reduce with.
template <class C>
using NarrowWire = std::conditional_t<comm::supports_wire<C, bf16>, bf16, float>;

/// Returns what reduce_scatter must leave in a `local` whose elements are `there`: elements [begin, begin + count) of
/// the sum of contributions(), or ((there + rank 0) + rank 1) + ....
template <class Wire>
std::vector<float> sums_into(float there, Write write, int size, std::int64_t begin, std::int64_t count) {
  if (write == Write::overwrite) return sums_of_contributions<Wire>(size, begin, count);
  std::vector<float> sums(static_cast<std::size_t>(count), there);
  for (int rank = 0; rank < size; ++rank)
    for (std::int64_t i = 0; i < count; ++i)
      sums[static_cast<std::size_t>(i)] += static_cast<float>(Wire(contribution(rank, begin + i)));
  return sums;
}

struct GathersUnevenAndEmptyPieces {
  static constexpr const char* asked =
      "all_gather copies the `local` of every rank to its place in the `full` of every rank; pieces differ in length, "
      "and rank 1 has none";
  template <class C>
  static void check(C& c) {
    const Counts counts = uneven_counts(c.size());
    Values<std::int32_t> full(total_of(counts), -1);
    Values<std::int32_t> local(static_cast<std::size_t>(count_of(counts, c.rank())) + 1, c.rank());
    const std::vector<comm::Segment<std::int32_t>> segments{{local.data(), full.data(), counts}};

    comm::all_gather(c, segments).wait();

    Values<std::int32_t> expected;
    for (int rank = 0; rank < c.size(); ++rank)
      expected.insert(expected.end(), static_cast<std::size_t>(count_of(counts, rank)), rank);
    expect_values(asked, rank_in_words(c), "`full`, where every element is the number of the rank that it comes from",
                  full, expected);
  }
};

struct GathersInPlaceWithoutCopyingItself {
  static constexpr const char* asked =
      "all_gather of pieces that already lie in their place in `full` leaves them there and fetches the others";
  template <class C>
  static void check(C& c) {
    const Counts counts(static_cast<std::size_t>(c.size()), 5);
    Values<bf16> full(5 * static_cast<std::size_t>(c.size()));
    bf16* const local = full.data() + 5 * c.rank();
    std::fill_n(local, 5, bf16(static_cast<float>(c.rank())));
    const std::int64_t bytes_before = c.monitor().totals.copied_bytes;

    comm::all_gather(c, std::vector<comm::Segment<bf16>>{{local, full.data(), counts}}).wait();

    Values<bf16> expected;
    for (std::size_t i = 0; i < full.size(); ++i) expected.push_back(bf16(static_cast<float>(i / 5)));
    expect_values(asked, rank_in_words(c), "`full`, where every element is the number of the rank that it comes from",
                  full, expected);
    expect_value(asked, rank_in_words(c), "monitor().totals.copied_bytes for 5 bf16 elements from each other rank",
                 c.monitor().totals.copied_bytes - bytes_before, std::int64_t{2 * 5 * (c.size() - 1)});
  }
};

struct MovesManySegmentsAsOneCollective {
  static constexpr const char* asked =
      "all_gather takes a list of 20 segments of different lengths, one without any element, as one collective";
  template <class C>
  static void check(C& c) {
    constexpr int number = 20;
    std::vector<Counts> counts;
    std::vector<Floats> full;
    std::vector<Floats> local;
    std::vector<comm::Segment<float>> segments;
    for (int i = 0; i < number; ++i) {
      counts.push_back(i == 7 ? Counts(static_cast<std::size_t>(c.size()), 0) : uneven_counts(c.size(), i));
      full.emplace_back(total_of(counts.back()));
      local.emplace_back(static_cast<std::size_t>(count_of(counts.back(), c.rank())),
                         static_cast<float>(100 * i + c.rank()));
    }
    for (std::size_t i = 0; i < number; ++i) segments.push_back({local[i].data(), full[i].data(), counts[i]});
    segments[7] = {nullptr, nullptr, counts[7]};
    const std::int64_t collectives_before = c.monitor().totals.traffic.calls();

    comm::all_gather(c, segments).wait();

    expect_value(asked, rank_in_words(c), "the number of collectives that monitor() counted",
                 c.monitor().totals.traffic.calls() - collectives_before, std::int64_t{1});
    for (std::size_t i = 0; i < number; ++i) {
      Floats expected;
      for (int rank = 0; rank < c.size(); ++rank)
        expected.insert(expected.end(), static_cast<std::size_t>(count_of(counts[i], rank)),
                        static_cast<float>(100 * static_cast<int>(i) + rank));
      if (!expect_values(
              asked, rank_in_words(c),
              message("`full` of segment ", i, ", whose elements are ", 100 * i, " + the rank they come from"), full[i],
              expected))
        return;
    }
  }
};

struct SumsInRankOrderToTheBit {
  static constexpr const char* asked =
      "reduce_scatter<Wire> rounds every contribution to Wire once and adds them in float in the order of ranks, "
      "((rank 0 + rank 1) + rank 2) + ..., so that results have the same bits over every communicator";
  template <class Wire, class C>
  static void check_wire(C& c, Write write) {
    const Counts counts = uneven_counts(c.size(), 5000);
    const Floats full = contributions(c.rank(), total_of(counts));
    Floats local(static_cast<std::size_t>(count_of(counts, c.rank())), 0.1f);
    const std::vector<comm::Segment<float>> segments{{local.data(), const_cast<float*>(full.data()), counts}};
    // NCCL adds floats up before it adds them to what is there, unless it is told the order.
    const comm::SumOrder order = write == Write::accumulate ? comm::SumOrder::ranks : comm::SumOrder::any;

    comm::reduce_scatter<Wire>(c, segments, write, {}, comm::Contributions::kept, order).wait();

    expect_values(asked, rank_in_words(c),
                  message("the sum in `local`, wire ", name_of(dtype_of<Wire>()),
                          write == Write::accumulate ? ", added to the 0.1 that was there" : ", which overwrites"),
                  local,
                  sums_into<Wire>(0.1f, write, c.size(), begin_of(counts, c.rank()), count_of(counts, c.rank())));
  }
  template <class C>
  static void check(C& c) {
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      check_wire<float>(c, write);
      if constexpr (comm::supports_wire<C, bf16>) check_wire<bf16>(c, write);
    }
  }
};

struct SumsInRankOrderWhereAsked {
  static constexpr const char* asked =
      "reduce_scatter with SumOrder::ranks adds contributions in the order of ranks, whatever order the communicator "
      "may have of its own";
  /// Rotates 1e8, 1 and -1e8 by element: a 1 added before -1e8 meets 1e8 is lost, so that each order of three ranks
  /// gives its own pattern of zeros and ones.
  static float value(int rank, std::int64_t index) {
    constexpr std::array turns{1e8f, 1.0f, -1e8f};
    return turns[static_cast<std::size_t>((rank + index) % 3)];
  }
  template <class Wire, class C>
  static void check_counts(C& c, const Counts& counts, Write write) {
    const std::int64_t begin = begin_of(counts, c.rank()), count = count_of(counts, c.rank());
    Floats full(total_of(counts));
    for (std::size_t i = 0; i < full.size(); ++i) full[i] = value(c.rank(), static_cast<std::int64_t>(i));
    Floats local(static_cast<std::size_t>(count), 3.0f);
    const std::vector<comm::Segment<float>> segments{{local.data(), full.data(), counts}};

    comm::reduce_scatter<Wire>(c, segments, write, {}, comm::Contributions::kept, comm::SumOrder::ranks).wait();

    std::vector<float> expected(static_cast<std::size_t>(count), write == Write::accumulate ? 3.0f : 0.0f);
    for (int rank = 0; rank < c.size(); ++rank)
      for (std::int64_t i = 0; i < count; ++i)
        expected[static_cast<std::size_t>(i)] += static_cast<float>(Wire(value(rank, begin + i)));
    expect_values(asked, rank_in_words(c),
                  message("the sum of 1e8, 1 and -1e8 in turns in `local`, wire ", name_of(dtype_of<Wire>()),
                          write == Write::accumulate ? ", added to the 3 that was there" : ", which overwrites"),
                  local, expected);
  }
  template <class C>
  static void check(C& c) {
    for (const Write write : {Write::overwrite, Write::accumulate})
      for (const Counts& counts : {uneven_counts(c.size(), 40), Counts(static_cast<std::size_t>(c.size()), 33)}) {
        check_counts<float>(c, counts, write);
        if constexpr (comm::supports_wire<C, bf16>) check_counts<bf16>(c, counts, write);
      }
  }
};

struct AddsRankByRankToWhatIsThere {
  static constexpr const char* asked =
      "reduce_scatter that accumulates adds the contribution of each rank by itself to what `local` holds, "
      "((local + rank 0) + rank 1) + ..., and not their sum";
  /// A power of two, so that it is a bf16 too. A contribution is half of its last bit: lost alone, not with another.
  static float there(std::int64_t index) { return static_cast<float>(1 << index % 5); }
  template <class Wire, class C>
  static void check_wire(C& c) {
    const Counts counts = uneven_counts(c.size(), 30);
    const std::int64_t begin = begin_of(counts, c.rank());
    Floats full(total_of(counts));
    for (std::size_t i = 0; i < full.size(); ++i) full[i] = 0x1p-24f * there(static_cast<std::int64_t>(i));
    Floats local(static_cast<std::size_t>(count_of(counts, c.rank())));
    for (std::size_t i = 0; i < local.size(); ++i) local[i] = there(begin + static_cast<std::int64_t>(i));
    const Floats before = local;
    const std::vector<comm::Segment<float>> segments{{local.data(), full.data(), counts}};

    comm::reduce_scatter<Wire>(c, segments, Write::accumulate, {}, comm::Contributions::kept, comm::SumOrder::ranks)
        .wait();

    expect_values(asked, rank_in_words(c),
                  message("the sum in `local`, wire ", name_of(dtype_of<Wire>()),
                          ", where each rank adds 2^-24 of what was there, which changes nothing"),
                  local, before);
  }
  template <class C>
  static void check(C& c) {
    check_wire<float>(c);
    if constexpr (comm::supports_wire<C, bf16>) check_wire<bf16>(c);
  }
};

struct SumsIntoItsOwnContribution {
  static constexpr const char* asked =
      "reduce_scatter whose `local` lies in its place in `full` puts the sum there and leaves the rest of `full` alone";
  template <class C>
  static void check(C& c) {
    const Counts counts = uneven_counts(c.size(), 100);
    Floats full = contributions(c.rank(), total_of(counts));
    const std::int64_t begin = begin_of(counts, c.rank());
    Floats expected = full;
    for (std::int64_t i = begin; i < begin + count_of(counts, c.rank()); ++i)
      expected[static_cast<std::size_t>(i)] = sum_of_contributions<float>(c.size(), i);

    comm::reduce_scatter<float>(c, std::vector<comm::Segment<float>>{{full.data() + begin, full.data(), counts}},
                                Write::overwrite)
        .wait();

    expect_values(asked, rank_in_words(c),
                  message("`full`, whose elements from ", begin, " on are the ", count_of(counts, c.rank()),
                          " sums of this rank"),
                  full, expected);
  }
};

struct SumsSpentContributions {
  static constexpr const char* asked =
      "reduce_scatter of spent contributions makes the same sums, and may use this rank's place of `full` but no other";
  template <class C>
  static void check_counts(C& c, const Counts& counts, Write write, comm::SumOrder order) {
    const std::int64_t begin = begin_of(counts, c.rank()), count = count_of(counts, c.rank());
    Floats full = contributions(c.rank(), total_of(counts));
    auto expected = sums_into<float>(0.5f, write, c.size(), begin, count);
    if (order == comm::SumOrder::any) {  // sums that are exact, in any order
      std::fill(full.begin(), full.end(), static_cast<float>(c.rank() + 1));
      const float sum = static_cast<float>(c.size() * (c.size() + 1) / 2);
      std::fill(expected.begin(), expected.end(), write == Write::accumulate ? 0.5f + sum : sum);
    }
    Floats kept = full;
    Floats local(static_cast<std::size_t>(count), 0.5f);
    const std::vector<comm::Segment<float>> segments{{local.data(), full.data(), counts}};

    comm::reduce_scatter<float>(c, segments, write, {}, comm::Contributions::spent, order).wait();

    const std::string what = write == Write::accumulate ? "added to 0.5" : "which overwrites";
    expect_values(asked, rank_in_words(c), message("the sum in `local`, ", what), local, expected);
    std::copy_n(full.begin() + begin, count, kept.begin() + begin);
    expect_values(asked, rank_in_words(c), message("`full` outside of this rank's place, ", what), full, kept);
  }
  template <class C>
  static void check(C& c) {
    for (const Write write : {Write::overwrite, Write::accumulate})
      for (const comm::SumOrder order : {comm::SumOrder::any, comm::SumOrder::ranks}) {
        check_counts(c, uneven_counts(c.size(), 1000), write, order);
        check_counts(c, Counts(static_cast<std::size_t>(c.size()), 900), write, order);
      }
  }
};

struct AllReduceGivesTheBitsOfReduceScatter {
  static constexpr const char* asked =
      "all_reduce<Wire> leaves on every rank, in all of `full`, the sums that reduce_scatter<Wire> makes, to the bit";
  template <class Wire, class C>
  static void check_wire(C& c) {
    const Counts counts = uneven_counts(c.size(), 2000);
    const Counts more_counts(static_cast<std::size_t>(c.size()), 17);
    Floats full = contributions(c.rank(), total_of(counts));
    Floats more = contributions(c.rank(), total_of(more_counts));

    comm::all_reduce<Wire>(
        c, std::vector<comm::Segment<float>>{{full.data() + begin_of(counts, c.rank()), full.data(), counts},
                                             {more.data() + 17 * c.rank(), more.data(), more_counts}})
        .wait();

    const auto sums = [&](const Floats& of) {
      return sums_of_contributions<Wire>(c.size(), 0, static_cast<std::int64_t>(of.size()));
    };
    const std::string wire = message(", wire ", name_of(dtype_of<Wire>()));
    expect_values(asked, rank_in_words(c), "`full` of a segment with uneven pieces" + wire, full, sums(full));
    expect_values(asked, rank_in_words(c), "`full` of a segment with equal pieces" + wire, more, sums(more));
  }
  template <class C>
  static void check(C& c) {
    check_wire<float>(c);
    if constexpr (comm::supports_wire<C, bf16>) check_wire<bf16>(c);
  }
};

/// So many elements that each peer needs several pieces of scratch.
struct SumsMoreThanItsScratchHolds {
  static constexpr const char* asked =
      "reduce_scatter adds tensors of 3 million elements, more than a communicator should hold scratch for";
  template <class C>
  static void check(C& c) {
    const Counts counts(static_cast<std::size_t>(c.size()), (3 << 20) / c.size() + 11);
    Floats full = contributions(c.rank(), total_of(counts));
    Floats local(static_cast<std::size_t>(counts[0]));

    comm::reduce_scatter<NarrowWire<C>>(c, std::vector<comm::Segment<float>>{{local.data(), full.data(), counts}},
                                        Write::overwrite)
        .wait();

    expect_values(asked, rank_in_words(c), "the sum in `local`", local,
                  sums_of_contributions<NarrowWire<C>>(c.size(), begin_of(counts, c.rank()), counts[0]));
  }
};

/// Ranks start and wait at different times. Each reads its result and overwrites its contribution as soon as `wait` has
/// returned.
struct WaitsForResultsAndForPeersThatStillRead {
  static constexpr const char* asked =
      "wait() of a request returns when the results of this rank are in place and no other rank reads its memory any "
      "more, whichever rank comes or waits first";
  template <class C>
  static void check(C& c) {
    using std::chrono::milliseconds;
    const Counts counts = uneven_counts(c.size(), 500);
    const auto gathered = [&](int round) {
      Floats expected;
      for (int rank = 0; rank < c.size(); ++rank)
        expected.insert(expected.end(), static_cast<std::size_t>(count_of(counts, rank)),
                        static_cast<float>(10 * round + rank));
      return expected;
    };
    for (int round = 0; round < 2; ++round) {
      const int late = round == 0 ? c.rank() : c.size() - 1 - c.rank();
      Floats full(total_of(counts), -1.0f);
      Floats local(static_cast<std::size_t>(count_of(counts, c.rank())), static_cast<float>(10 * round + c.rank()));
      std::this_thread::sleep_for(milliseconds(late));
      auto pending = comm::all_gather(c, std::vector<comm::Segment<float>>{{local.data(), full.data(), counts}});
      std::this_thread::sleep_for(milliseconds(2 * late));
      pending.wait();
      const Floats found = full;
      std::fill(local.begin(), local.end(), -2.0f);
      expect_values(
          asked, rank_in_words(c),
          "`full` of an all_gather right after wait(), where -1 means that nothing has come yet and -2 that a rank "
          "was let go, and wrote over its `local`, before this one had read it",
          found, gathered(round));
      comm::barrier(c);  // memory is freed after all have read it, even if `wait` is wrong
    }
  }
};

}  // namespace fsdp::testing
