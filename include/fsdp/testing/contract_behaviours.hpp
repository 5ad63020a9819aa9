// SPDX-License-Identifier: Apache-2.0
/// @file
/// Required behaviour of communicators, part two: requests, small values, splits, records, checks. See behaviours.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/testing/behaviours.hpp>
#include <tessera/fsdp/testing/exchange_behaviours.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/values.hpp>

namespace fsdp::testing {

struct KeepsSeveralCollectivesInFlight {
  static constexpr const char* asked =
      "40 gathers and reductions may be started before the first is waited for; test() makes progress, and each has "
      "its result once it was tested or waited for";
  template <class C>
  static void check(C& c) {
    constexpr int number = 40;  // more than the slots of a backend
    const Counts counts = uneven_counts(c.size(), 50);
    const std::int64_t begin = begin_of(counts, c.rank());
    std::vector<Floats> full;
    std::vector<comm::Pending<C>> pending;
    for (int i = 0; i < number; ++i) full.push_back(contributions(c.rank() + i, total_of(counts)));
    for (Floats& values : full) {
      const auto segments = one_segment(values.data() + begin, values.data(), counts);
      pending.push_back(pending.size() % 3 == 0 ? comm::all_gather(c, segments) : comm::all_reduce<float>(c, segments));
    }
    while (!pending[0].test()) {
    }
    for (comm::Pending<C>& rest : pending) rest.wait();

    for (int i = 0; i < number; ++i) {
      const auto value = [&](int rank, std::int64_t at) {
        if (i % 3 == 0) return contribution(rank + i, at);
        float sum = contribution(i, at);
        for (int other = 1; other < c.size(); ++other) sum += contribution(other + i, at);
        return sum;
      };
      if (!expect_values(asked, c,
                         message("`full` of collective ", i, ", an ", i % 3 == 0 ? "all_gather" : "all_reduce"),
                         full[static_cast<std::size_t>(i)], gathered<float>(counts, value)))
        return;
    }
  }
};

struct AnUnwaitedRequestIsWaitedForWhenDestroyed {
  static constexpr const char* asked =
      "the destructor of a request that was moved, and not waited for, waits: afterwards the results are in place";
  template <class C>
  static void check(C& c) {
    const Counts counts = equal_counts(c.size(), 3);
    Values<std::uint8_t> full(3 * static_cast<std::size_t>(c.size()), 99);
    Values<std::uint8_t> local(3, static_cast<std::uint8_t>(c.rank()));
    {
      comm::Pending<C> moved_from = comm::all_gather(c, one_segment(local.data(), full.data(), counts));
      const comm::Pending<C> owner = std::move(moved_from);
    }
    expect_values(asked, c, ranks_in_full, full, gathered<std::uint8_t>(counts, [](int rank, auto) { return rank; }));
  }
};

struct CombinesFewValuesInRankOrder {
  static constexpr const char* asked =
      "reduce combines a few values of all ranks in the order of ranks: sums of doubles to the bit, largest and least "
      "of integers and doubles";
  static void check(auto& c) {
    double expected = 0.1;
    for (int rank = 1; rank < c.size(); ++rank) expected += 0.1 * (1 + rank);
    expect_value(asked, c, "the sum of 0.1 * (1 + rank)", comm::sum_over_ranks(c, 0.1 * (1 + c.rank())), expected);

    std::array<std::int64_t, 2> values{c.rank(), (std::int64_t{1} << 60) - c.rank()};
    comm::reduce(c, std::span<std::int64_t>(values), comm::Reduction::max);
    expect_values(asked, c, "the largest of {rank, 2^60 - rank}", values,
                  std::array<std::int64_t, 2>{c.size() - 1, std::int64_t{1} << 60});
    std::array<double, 2> least{1.5 * c.rank(), 1.0 - c.rank()};
    comm::reduce(c, std::span<double>(least), comm::Reduction::min);
    expect_values(asked, c, "the least of {1.5 * rank, 1 - rank}", least, std::array<double, 2>{0.0, 2.0 - c.size()});
  }
};

struct BroadcastsFromEveryRoot {
  static constexpr const char* asked = "broadcast gives every rank the bytes of the root, whichever rank that is";
  static void check(auto& c) {
    for (int root = 0; root < c.size(); ++root) {
      std::array<int, 3> values{c.rank(), 10 * c.rank(), 7};
      comm::broadcast(c, std::as_writable_bytes(std::span(values)), root);
      expect_values(asked, c, message("{root, 10 * root, 7} from root ", root), values,
                    std::array<int, 3>{root, 10 * root, 7});
    }
    comm::broadcast(c, {}, 0);
  }
};

struct GathersBytes {
  static constexpr const char* asked = "gather_bytes gives every rank the bytes of all ranks, in the order of ranks";
  static void check(auto& c) {
    const int mine = 1000 + c.rank();
    std::vector<int> all(static_cast<std::size_t>(c.size()));
    comm::gather_bytes(c, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    std::vector<int> expected(all.size());
    std::iota(expected.begin(), expected.end(), 1000);
    expect_values(asked, c, "the integers 1000 + rank", all, expected);
    comm::barrier(c);
  }
};

struct SplitsByColorInRankOrder {
  static constexpr const char* asked =
      "split makes a communicator of the ranks with equal colour, in the order that they had, and it can be split "
      "again";
  template <class C>
  static void check(C& c) {
    C parity = c.split(c.rank() % 2);
    C pair = c.split(c.rank() / 2);
    const auto expect = [&](std::string_view which, double found, double expected) {
      expect_value(asked, c, which, found, expected);
    };
    expect("the rank among those with the same rank % 2", parity.rank(), c.rank() / 2);
    expect("the number of ranks with the same rank % 2", parity.size(), (c.size() + 1 - c.rank() % 2) / 2);
    expect("the rank among those with the same rank / 2", pair.rank(), c.rank() % 2);

    double expected = 0;
    for (int rank = c.rank() % 2; rank < c.size(); rank += 2) expected += rank;
    expect("the sum of the ranks with the same rank % 2", comm::sum_over_ranks(parity, c.rank()), expected);
    const bool alone = c.rank() % 2 == 0 && c.rank() + 1 == c.size();
    expect("the sum of 1 over the ranks with the same rank / 2", comm::sum_over_ranks(pair, 1), alone ? 1 : 2);
    C nested = parity.split(0);
    expect("the same sum over a part of the part", comm::sum_over_ranks(nested, c.rank()), expected);
  }
};

struct RecordsWhatWasAskedFor {
  static constexpr const char* asked =
      "where monitor().options asks for records, every collective is recorded, and announced before it starts, with "
      "its number, kind, wire type, bytes and label, in the order of the calls";
  template <class C>
  static void check(C& c) {
    const auto usual = c.monitor().options;
    c.monitor().options.record = true;
    std::vector<comm::Record> announced;
    int announced_for = c.rank();
    c.monitor().options.before = [&](int rank, const comm::Record& event) {
      if (usual.before) usual.before(rank, event);
      if (rank != c.rank()) announced_for = rank;
      announced.push_back(event);
    };
    const std::int64_t n = c.size();
    const Counts counts(static_cast<std::size_t>(n), 4);
    // Each call has separate memory, since only the hosts order the calls.
    Floats local(4), reduced(4), full(4 * counts.size()), partial(full), summed(full);
    const std::vector<comm::Segment<float>> segments{{local.data(), full.data(), counts},
                                                     {local.data(), full.data(), counts}};
    const std::vector<comm::Segment<float>> partials{{reduced.data(), partial.data(), counts},
                                                     {reduced.data(), partial.data(), counts}};
    const auto in_place = one_segment(summed.data() + 4 * c.rank(), summed.data(), counts);
    const std::int64_t first = c.monitor().sequence;
    using Wire = NarrowWire<C>;

    comm::all_gather(c, segments, {.what = "weights", .unit = 2}).wait();
    comm::reduce_scatter<Wire>(c, partials, Write::accumulate, {.what = "gradients", .unit = 2}).wait();
    comm::all_reduce<float>(c, in_place, {.unit = 1}).wait();
    comm::sum_over_ranks(c, 1, {.what = "loss"});
    comm::barrier(c);
    c.monitor().options.record = false;
    c.monitor().options.before = usual.before;
    comm::barrier(c);

    const auto in_words = [](const std::vector<comm::Record>& records) {
      std::string text;
      for (const comm::Record& record : records) text += comm::describe(record) + "; ";
      return text;
    };
    const std::vector<comm::Record> expected{
        {first, comm::Op::all_gather, DType::f32, 32 * n, {"weights", 2}},
        {first + 1, comm::Op::reduce_scatter, dtype_of<Wire>(), 8 * n * std::int64_t{sizeof(Wire)}, {"gradients", 2}},
        {first + 2, comm::Op::all_reduce, DType::f32, 16 * n, {"", 1}},
        {first + 3, comm::Op::reduce, DType::f64, 8, {"loss", -1}},
        {first + 4, comm::Op::barrier, DType::u8, 0, {}},
    };
    for (const auto& [which, found] : {std::pair("monitor().records", &c.monitor().records),
                                       std::pair("what monitor().options.before was told", &announced)})
      if (*found != expected) fail(asked, c, which, " is: ", in_words(*found), "instead of: ", in_words(expected));
    expect_value(asked, c, "the rank that monitor().options.before was told", announced_for, c.rank());
    c.monitor().records.clear();
  }
};

struct CutsLongMessages {
  static constexpr const char* asked =
      "where monitor().options.message_bytes is 13, collectives of more bytes move the same values";
  static void check(auto& c) {
    const std::int64_t usual = std::exchange(c.monitor().options.message_bytes, 13);
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, asked);
    GathersUnevenAndEmptyPieces::check(c);
    MovesManySegmentsAsOneCollective::check(c);
    BroadcastsFromEveryRoot::check(c);
    c.monitor().options.message_bytes = usual;
  }
};

struct ChecksFindRanksThatDisagree {
  static constexpr const char* asked =
      "with monitor().options.checks on, where the last rank makes another call than the others every rank throws a "
      "CollectiveError that says how they differ, and the communicator can be used afterwards";
  static void check(auto& c) {
    if (c.size() == 1) return;
    const bool usual_checks = std::exchange(c.monitor().options.checks, true);
    const bool odd = c.rank() == c.size() - 1;
    const auto n = static_cast<std::size_t>(c.size());
    const Counts counts(n, 4);
    Counts other_counts = counts;
    other_counts[0] = 3;
    other_counts[1] = 5;
    Floats full(5 * n), local(5);
    const auto usual = one_segment(local.data(), full.data(), counts);
    const auto other = one_segment(local.data(), full.data(), other_counts);
    const auto integers = one_segment(reinterpret_cast<std::int32_t*>(local.data()),
                                      reinterpret_cast<std::int32_t*>(full.data()), counts);

    const auto expect = [&](std::string_view which, auto call, const std::vector<std::string>& parts) {
      expect_collective_error(asked, c, which, call, parts);
    };
    expect("a barrier instead of an all_gather",
           [&] { odd ? comm::barrier(c) : comm::all_gather(c, usual, {.unit = 3}).wait(); },
           {c.monitor().name_of(0) + " is in all_gather of unit 3 (f32, ", "is in barrier"});
    expect("an all_gather of pieces of other lengths", [&] { comm::all_gather(c, odd ? other : usual).wait(); },
           {"the counts of elements by rank differ"});
    expect("an all_gather of integers instead of floats",
           [&] { odd ? comm::all_gather(c, integers).wait() : comm::all_gather(c, usual).wait(); },
           {"(f32, ", "(i32, "});
    expect("an all_gather of another unit",
           [&] { comm::all_gather(c, usual, {.what = "weights", .unit = odd ? 4 : 3}).wait(); },
           {"weights, unit 3", "weights, unit 4"});
    expect("a reduce_scatter that adds instead of one that overwrites",
           [&] { comm::reduce_scatter<float>(c, usual, odd ? Write::accumulate : Write::overwrite).wait(); },
           {"Write"});
    expect("a reduce_scatter in the order of ranks instead of one in any order",
           [&] {
             comm::reduce_scatter<float>(c, usual, Write::overwrite, {}, comm::Contributions::kept,
                                         odd ? comm::SumOrder::ranks : comm::SumOrder::any)
                 .wait();
           },
           {"SumOrder"});
    if (odd) ++c.monitor().sequence;
    expect("a barrier after one collective more", [&] { comm::barrier(c); },
           {"every rank must make the same collectives in the same order"});
    if (odd) --c.monitor().sequence;

    comm::all_gather(c, usual).wait();
    comm::barrier(c);
    c.monitor().options.checks = usual_checks;
  }
};

struct RefusesBrokenArguments {
  static constexpr const char* asked = "a collective with arguments that cannot be right throws a LogicError at once";
  static void check(auto& c) {
    const auto n = static_cast<std::size_t>(c.size());
    const Counts counts(n, 2), too_many(n + 1, 2);
    Floats full(2 * n), local(2);
    const auto expect = [&](std::string_view which, auto call) { expect_error<LogicError>(asked, c, which, call); };
    expect("all_gather with one count too many",
           [&] { comm::all_gather(c, one_segment(local.data(), full.data(), too_many)).wait(); });
    expect("all_gather without memory for `local`",
           [&] { comm::all_gather(c, one_segment<float>(nullptr, full.data(), counts)).wait(); });
    expect("all_gather with counts of -1",
           [&] { comm::all_gather(c, one_segment(local.data(), full.data(), Counts(n, -1))).wait(); });
    expect("all_reduce whose `local` is not in its place in `full`",
           [&] { comm::all_reduce<float>(c, one_segment(local.data(), full.data(), counts)).wait(); });
    expect("reduce_scatter that adds the sum to one of its contributions", [&] {
      comm::reduce_scatter<float>(c, one_segment(full.data() + 2 * c.rank(), full.data(), counts), Write::accumulate)
          .wait();
    });
    expect("broadcast from a rank that is not there", [&] { comm::broadcast(c, {}, c.size()); });
    expect("gather_bytes into no memory", [&] { comm::gather_bytes(c, std::as_bytes(std::span(local)), {}); });
  }
};

#define FSDP_BEHAVIOURS                                                                                               \
  GathersUnevenAndEmptyPieces, GathersInPlaceWithoutCopyingItself, MovesManySegmentsAsOneCollective,                  \
      SumsInRankOrderToTheBit, SumsInRankOrderWhereAsked, AddsRankByRankToWhatIsThere, SumsIntoItsOwnContribution,    \
      SumsSpentContributions, AllReduceGivesTheBitsOfReduceScatter, SumsMoreThanItsScratchHolds,                      \
      WaitsForResultsAndForPeersThatStillRead, KeepsSeveralCollectivesInFlight,                                       \
      AnUnwaitedRequestIsWaitedForWhenDestroyed, CombinesFewValuesInRankOrder, BroadcastsFromEveryRoot, GathersBytes, \
      SplitsByColorInRankOrder, RecordsWhatWasAskedFor, CutsLongMessages, ChecksFindRanksThatDisagree,                \
      RefusesBrokenArguments, ExchangesUnevenAndEmptyPieces, ExchangesSeveralTensorsAsOneCollective,                  \
      ExchangesBesideOtherCollectives, KeepsExchangedMemoryUntilPeersHaveReadIt, CutsLongExchanges,                   \
      ChecksFindExchangesThatDisagree, RefusesBrokenExchanges

/// All behaviours, for your own test that runs each of them: TYPED_TEST_SUITE(Mine, AllBehaviours, BehaviourName).
using AllBehaviours = ::testing::Types<FSDP_BEHAVIOURS>;

struct BehaviourName {
  template <class Behaviour>
  static std::string GetName(int) {
    const std::string_view name = type_name<Behaviour>();
    return std::string(name.substr(name.rfind(':') + 1));  // without namespaces
  }
};

}  // namespace fsdp::testing
