// SPDX-License-Identifier: Apache-2.0
/// @file
/// Required behaviour of communicators, part one: all-gathers and reductions of tensors. Exchanges are in
/// exchange_behaviours.hpp, everything else is in contract_behaviours.hpp.
///
/// A behaviour is a struct with `asked` (the requirement, which a failure prints) and `check(communicator)`, which is
/// called on every rank at once. To add one, add a struct to one of the headers, list it in AllBehaviours and in
/// communicator.hpp, and add a communicator that violates it to tests/testing (wrong_communicators.hpp and similar
/// files).
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
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

/// Calls check(Wire{}) with float, and with bf16 if the communicator can reduce with it.
template <class C>
void each_wire(C&, auto check) {
  check(float{});
  if constexpr (comm::supports_wire<C, bf16>) check(bf16{});
}

template <class T>
std::vector<comm::Segment<T>> one_segment(T* local, T* full, const Counts& counts) {
  return {{local, full, counts}};
}

/// Returns the expected contents of `full` after an all-gather: value(rank, index) from each rank. The index counts the
/// elements of all ranks.
template <class T, class Value>
Values<T> gathered(const Counts& counts, Value value) {
  Values<T> full;
  for (int rank = 0; rank < static_cast<int>(counts.size()); ++rank)
    for (std::int64_t i = begin_of(counts, rank); i < begin_of(counts, rank + 1); ++i)
      full.push_back(static_cast<T>(value(rank, i)));
  return full;
}

/// The description, in messages of the suite, of the result of an all-gather whose elements are rank numbers.
inline constexpr const char* ranks_in_full = "`full`, where every element is the number of the rank that it comes from";

struct SumCall {
  Write write = Write::overwrite;
  comm::SumOrder order = comm::SumOrder::any;
  comm::Contributions contributions = comm::Contributions::kept;

  bool adds() const { return write == Write::accumulate; }
};

/// Sums value(rank, index) over the ranks by reduce_scatter into `local`, which initially contains there(index). The
/// index counts the elements of all ranks. Afterwards `local` must be bit-identical to the sum in rank order, ((there +
/// rank 0) + rank 1) + .... Returns `full` after the call.
template <class Wire, class C, class Value, class There>
Floats check_sums(const char* asked, C& c, std::string_view which, const Counts& counts, const SumCall& call,
                  Value value, There there) {
  const std::int64_t begin = begin_of(counts, c.rank()), end = begin + count_of(counts, c.rank());
  Floats full(total_of(counts)), local(static_cast<std::size_t>(end - begin)), expected(local.size());
  for (std::size_t i = 0; i < full.size(); ++i) full[i] = value(c.rank(), static_cast<std::int64_t>(i));
  for (std::int64_t i = begin; i < end; ++i) {
    const auto sent = [&](int rank) { return static_cast<float>(Wire(value(rank, i))); };
    local[static_cast<std::size_t>(i - begin)] = there(i);
    float& sum = expected[static_cast<std::size_t>(i - begin)];
    sum = call.adds() ? there(i) + sent(0) : sent(0);
    for (int rank = 1; rank < c.size(); ++rank) sum += sent(rank);
  }

  comm::reduce_scatter<Wire>(c, one_segment(local.data(), full.data(), counts), call.write, {}, call.contributions,
                             call.order)
      .wait();

  expect_values(asked, c, which, local, expected);
  return full;
}

/// Waits for the request that start() returns. Ranks start and wait at different times, and in the opposite order in
/// the second of two rounds. As soon as `wait` has returned, reads the result `found` and overwrites `sent` with -2.
void check_wait(const char* asked, auto& c, int round, auto start, std::string_view which, const Floats& found,
                const Floats& expected, std::string_view which_sent, Floats& sent) {
  const int late = round == 0 ? c.rank() : c.size() - 1 - c.rank();
  std::this_thread::sleep_for(std::chrono::milliseconds(late));
  auto pending = start();
  std::this_thread::sleep_for(std::chrono::milliseconds(2 * late));
  pending.wait();
  const Floats right_after = found;
  std::fill(sent.begin(), sent.end(), -2.0f);
  expect_values(
      asked, c,
      message(which,
              " right after wait(), where -1 means that nothing has come yet and -2 that a rank was let go, and wrote "
              "over its ",
              which_sent, ", before this one had read it"),
      right_after, expected);
  comm::barrier(c);  // memory is freed only after all ranks have read it, even if `wait` is wrong
}

/// Checks that `call` throws a CollectiveError whose text contains all of `parts`. Returns the text, or "" if it does
/// not throw. Calls ended() before it inspects the text.
std::string expect_collective_error(const char* asked, auto& c, std::string_view which, auto call,
                                    const std::vector<std::string>& parts, const std::function<void()>& ended = {}) {
  const std::string text = expect_error<comm::CollectiveError>(asked, c, which, call);
  if (ended) ended();
  for (const std::string& part : parts)
    if (!text.empty()) expect_part(asked, message(Where(c).words, ", ", which), text, part);
  return text;
}

struct GathersUnevenAndEmptyPieces {
  static constexpr const char* asked =
      "all_gather copies the `local` of every rank to its place in the `full` of every rank; pieces differ in length, "
      "and rank 1 has none";
  static void check(auto& c) {
    const Counts counts = uneven_counts(c.size());
    Values<std::int32_t> full(total_of(counts), -1);
    Values<std::int32_t> local(static_cast<std::size_t>(count_of(counts, c.rank())) + 1, c.rank());

    comm::all_gather(c, one_segment(local.data(), full.data(), counts)).wait();

    expect_values(asked, c, ranks_in_full, full, gathered<std::int32_t>(counts, [](int rank, auto) { return rank; }));
  }
};

struct GathersInPlaceWithoutCopyingItself {
  static constexpr const char* asked =
      "all_gather of pieces that already lie in their place in `full` leaves them there and fetches the others";
  static void check(auto& c) {
    const Counts counts = equal_counts(c.size(), 5);
    Values<bf16> full(5 * static_cast<std::size_t>(c.size()));
    bf16* const local = full.data() + 5 * c.rank();
    std::fill_n(local, 5, bf16(static_cast<float>(c.rank())));
    const std::int64_t bytes_before = c.monitor().totals.copied_bytes;

    comm::all_gather(c, one_segment(local, full.data(), counts)).wait();

    expect_values(asked, c, ranks_in_full, full,
                  gathered<bf16>(counts, [](int rank, auto) { return static_cast<float>(rank); }));
    expect_value(asked, c, "monitor().totals.copied_bytes for 5 bf16 elements from each other rank",
                 c.monitor().totals.copied_bytes - bytes_before, std::int64_t{2 * 5 * (c.size() - 1)});
  }
};

struct MovesManySegmentsAsOneCollective {
  static constexpr const char* asked =
      "all_gather takes a list of 20 segments of different lengths, one without any element, as one collective";
  static void check(auto& c) {
    constexpr int number = 20;
    std::vector<Counts> counts;
    std::vector<Floats> full, local;
    std::vector<comm::Segment<float>> segments;
    for (int i = 0; i < number; ++i) {
      counts.push_back(i == 7 ? equal_counts(c.size(), 0) : uneven_counts(c.size(), i));
      full.emplace_back(total_of(counts.back()));
      local.emplace_back(static_cast<std::size_t>(count_of(counts.back(), c.rank())),
                         static_cast<float>(100 * i + c.rank()));
    }
    for (std::size_t i = 0; i < number; ++i) segments.push_back({local[i].data(), full[i].data(), counts[i]});
    segments[7] = {nullptr, nullptr, counts[7]};
    const std::int64_t collectives_before = c.monitor().totals.traffic.calls();

    comm::all_gather(c, segments).wait();

    expect_value(asked, c, "the number of collectives that monitor() counted",
                 c.monitor().totals.traffic.calls() - collectives_before, std::int64_t{1});
    for (std::size_t i = 0; i < number; ++i) {
      const auto value = [&](int rank, auto) { return static_cast<float>(100 * static_cast<int>(i) + rank); };
      if (!expect_values(
              asked, c,
              message("`full` of segment ", i, ", whose elements are ", 100 * i, " + the rank they come from"), full[i],
              gathered<float>(counts[i], value)))
        return;
    }
  }
};

struct SumsInRankOrderToTheBit {
  static constexpr const char* asked =
      "reduce_scatter<Wire> rounds every contribution to Wire once and adds them in float in the order of ranks, "
      "((rank 0 + rank 1) + rank 2) + ..., so that results have the same bits over every communicator";
  template <class Wire>
  static void check_wire(auto& c, Write write) {
    // Unless an order is requested, NCCL sums the contributions before it adds them to the destination.
    const SumCall call{.write = write,
                       .order = write == Write::accumulate ? comm::SumOrder::ranks : comm::SumOrder::any};
    check_sums<Wire>(asked, c,
                     message("the sum in `local`, wire ", name_of(dtype_of<Wire>()),
                             call.adds() ? ", added to the 0.1 that was there" : ", which overwrites"),
                     uneven_counts(c.size(), 5000), call, contribution, [](auto) { return 0.1f; });
  }
  static void check(auto& c) {
    for (const Write write : {Write::overwrite, Write::accumulate})
      each_wire(c, [&]<class Wire>(Wire) { check_wire<Wire>(c, write); });
  }
};

struct SumsInRankOrderWhereAsked {
  static constexpr const char* asked =
      "reduce_scatter with SumOrder::ranks adds contributions in the order of ranks, whatever order the communicator "
      "may have of its own";
  /// Rotates 1e8, 1 and -1e8 by element. If the 1 is added to a sum that contains only one of the large numbers, it is
  /// rounded away, so each order of three ranks gives a different pattern of zeros and ones.
  static float value(int rank, std::int64_t index) {
    constexpr std::array turns{1e8f, 1.0f, -1e8f};
    return turns[static_cast<std::size_t>((rank + index) % 3)];
  }
  static void check(auto& c) {
    for (const Write write : {Write::overwrite, Write::accumulate})
      for (const Counts& counts : {uneven_counts(c.size(), 40), equal_counts(c.size(), 33)})
        each_wire(c, [&]<class Wire>(Wire) {
          const SumCall call{.write = write, .order = comm::SumOrder::ranks};
          check_sums<Wire>(asked, c,
                           message("the sum of 1e8, 1 and -1e8 in turns in `local`, wire ", name_of(dtype_of<Wire>()),
                                   call.adds() ? ", added to the 3 that was there" : ", which overwrites"),
                           counts, call, value, [](auto) { return 3.0f; });
        });
  }
};

struct AddsRankByRankToWhatIsThere {
  static constexpr const char* asked =
      "reduce_scatter that accumulates adds the contribution of each rank by itself to what `local` holds, "
      "((local + rank 0) + rank 1) + ..., and not their sum";
  /// A power of two, which bf16 represents exactly. One contribution is half a unit in its last place: added alone, it
  /// is rounded away; added together with another one, it is not.
  static float there(std::int64_t index) { return static_cast<float>(1 << index % 5); }
  static void check(auto& c) {
    each_wire(c, [&]<class Wire>(Wire) {
      check_sums<Wire>(
          asked, c,
          message("the sum in `local`, wire ", name_of(dtype_of<Wire>()),
                  ", where each rank adds 2^-24 of what was there, which changes nothing"),
          uneven_counts(c.size(), 30), {.write = Write::accumulate, .order = comm::SumOrder::ranks},
          [](int, std::int64_t index) { return 0x1p-24f * there(index); }, there);
    });
  }
};

struct SumsIntoItsOwnContribution {
  static constexpr const char* asked =
      "reduce_scatter whose `local` lies in its place in `full` puts the sum there and leaves the rest of `full` alone";
  static void check(auto& c) {
    const Counts counts = uneven_counts(c.size(), 100);
    Floats full = contributions(c.rank(), total_of(counts));
    const std::int64_t begin = begin_of(counts, c.rank());
    Floats expected = full;
    std::ranges::copy(sums_of_contributions<float>(c.size(), begin, count_of(counts, c.rank())),
                      expected.begin() + begin);

    comm::reduce_scatter<float>(c, one_segment(full.data() + begin, full.data(), counts), Write::overwrite).wait();

    expect_values(asked, c,
                  message("`full`, whose elements from ", begin, " on are the ", count_of(counts, c.rank()),
                          " sums of this rank"),
                  full, expected);
  }
};

struct SumsSpentContributions {
  static constexpr const char* asked =
      "reduce_scatter of spent contributions makes the same sums, and may use this rank's place of `full` but no other";
  static void check_counts(auto& c, const Counts& counts, Write write, comm::SumOrder order) {
    const SumCall call{.write = write, .order = order, .contributions = comm::Contributions::spent};
    // Sums of small integers are exact in any order.
    const auto value = call.order == comm::SumOrder::any
                           ? [](int rank, std::int64_t) { return static_cast<float>(rank + 1); }
                           : contribution;
    const std::string what = call.adds() ? "added to 0.5" : "which overwrites";
    const Floats full = check_sums<float>(asked, c, message("the sum in `local`, ", what), counts, call, value,
                                          [](auto) { return 0.5f; });
    const std::int64_t begin = begin_of(counts, c.rank());
    Floats kept(full.size());
    for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = value(c.rank(), static_cast<std::int64_t>(i));
    std::copy_n(full.begin() + begin, count_of(counts, c.rank()), kept.begin() + begin);
    expect_values(asked, c, message("`full` outside of this rank's place, ", what), full, kept);
  }
  static void check(auto& c) {
    for (const Write write : {Write::overwrite, Write::accumulate})
      for (const comm::SumOrder order : {comm::SumOrder::any, comm::SumOrder::ranks}) {
        check_counts(c, uneven_counts(c.size(), 1000), write, order);
        check_counts(c, equal_counts(c.size(), 900), write, order);
      }
  }
};

struct AllReduceGivesTheBitsOfReduceScatter {
  static constexpr const char* asked =
      "all_reduce<Wire> leaves on every rank, in all of `full`, the sums that reduce_scatter<Wire> makes, to the bit";
  template <class Wire>
  static void check_wire(auto& c) {
    const Counts counts = uneven_counts(c.size(), 2000), more_counts = equal_counts(c.size(), 17);
    Floats full = contributions(c.rank(), total_of(counts)), more = contributions(c.rank(), total_of(more_counts));

    comm::all_reduce<Wire>(
        c, std::vector<comm::Segment<float>>{{full.data() + begin_of(counts, c.rank()), full.data(), counts},
                                             {more.data() + 17 * c.rank(), more.data(), more_counts}})
        .wait();

    const std::string wire = message(", wire ", name_of(dtype_of<Wire>()));
    expect_values(asked, c, "`full` of a segment with uneven pieces" + wire, full,
                  sums_of_contributions<Wire>(c.size(), 0, std::ssize(full)));
    expect_values(asked, c, "`full` of a segment with equal pieces" + wire, more,
                  sums_of_contributions<Wire>(c.size(), 0, std::ssize(more)));
  }
  static void check(auto& c) {
    each_wire(c, [&]<class Wire>(Wire) { check_wire<Wire>(c); });
  }
};

/// Sums so many elements that each peer needs several pieces of scratch.
struct SumsMoreThanItsScratchHolds {
  static constexpr const char* asked =
      "reduce_scatter adds tensors of 3 million elements, more than a communicator should hold scratch for";
  template <class C>
  static void check(C& c) {
    check_sums<NarrowWire<C>>(asked, c, "the sum in `local`", equal_counts(c.size(), (3 << 20) / c.size() + 11), {},
                              contribution, [](auto) { return 0.0f; });
  }
};

struct WaitsForResultsAndForPeersThatStillRead {
  static constexpr const char* asked =
      "wait() of a request returns when the results of this rank are in place and no other rank reads its memory any "
      "more, whichever rank comes or waits first";
  static void check(auto& c) {
    const Counts counts = uneven_counts(c.size(), 500);
    for (int round = 0; round < 2; ++round) {
      const auto value = [&](int rank, auto) { return static_cast<float>(10 * round + rank); };
      Floats full(total_of(counts), -1.0f);
      Floats local(static_cast<std::size_t>(count_of(counts, c.rank())), value(c.rank(), 0));
      check_wait(
          asked, c, round, [&] { return comm::all_gather(c, one_segment(local.data(), full.data(), counts)); },
          "`full` of an all_gather", full, gathered<float>(counts, value), "`local`", local);
    }
  }
};

}  // namespace fsdp::testing
