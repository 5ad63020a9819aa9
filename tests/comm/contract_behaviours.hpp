// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behaviours of the calls around the data: requests, small values, splits, records, checks. See behaviours.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <comm/collectives.hpp>

#include "behaviours.hpp"

namespace fsdp::comm {

struct KeepsSeveralCollectivesInFlight {
  static constexpr const char* name = "KeepsSeveralCollectivesInFlight";
  template <class C>
  static void check(C& c) {
    constexpr int number = 40;  // more than a backend has slots for
    const Counts counts = uneven_counts(c.size(), 50);
    const std::int64_t begin = begin_of(counts, c.rank());
    std::vector<Floats> full;
    std::vector<Pending<C>> pending;
    for (int i = 0; i < number; ++i) full.push_back(contributions(c.rank() + i, total_of(counts)));
    for (int i = 0; i < number; ++i) {
      Floats& values = full[static_cast<std::size_t>(i)];
      const std::vector<Segment<float>> segments{{values.data() + begin, values.data(), counts}};
      if (i % 3 == 0)
        pending.push_back(all_gather(c, segments));
      else
        pending.push_back(all_reduce<float>(c, segments));
    }
    while (!pending[0].test()) {
    }
    for (Pending<C>& rest : pending) rest.wait();

    for (int i = 0; i < number; ++i)
      for (int rank = 0; rank < c.size(); ++rank)
        for (std::int64_t at = begin_of(counts, rank); at < begin_of(counts, rank + 1); ++at) {
          float expected = contribution(i % 3 == 0 ? rank + i : i, at);
          for (int other = 1; i % 3 != 0 && other < c.size(); ++other) expected += contribution(other + i, at);
          ASSERT_EQ(full[static_cast<std::size_t>(i)][static_cast<std::size_t>(at)], expected) << "collective " << i;
        }
  }
};

struct AnUnwaitedRequestIsWaitedForWhenDestroyed {
  static constexpr const char* name = "AnUnwaitedRequestIsWaitedForWhenDestroyed";
  template <class C>
  static void check(C& c) {
    const Counts counts(static_cast<std::size_t>(c.size()), 3);
    Values<std::uint8_t> full(3 * static_cast<std::size_t>(c.size()), 99);
    Values<std::uint8_t> local(3, static_cast<std::uint8_t>(c.rank()));
    {
      Pending<C> moved_from = all_gather(c, std::vector<Segment<std::uint8_t>>{{local.data(), full.data(), counts}});
      const Pending<C> owner = std::move(moved_from);
    }
    for (std::size_t i = 0; i < full.size(); ++i) EXPECT_EQ(full[i], i / 3);
  }
};

struct CombinesFewValuesInRankOrder {
  static constexpr const char* name = "CombinesFewValuesInRankOrder";
  template <class C>
  static void check(C& c) {
    double expected = 0.1;
    for (int rank = 1; rank < c.size(); ++rank) expected += 0.1 / (1 + rank);
    EXPECT_EQ(sum_over_ranks(c, 0.1 / (1 + c.rank())), expected);

    std::array<std::int64_t, 2> values{c.rank(), (std::int64_t{1} << 60) - c.rank()};
    reduce(c, std::span<std::int64_t>(values), Reduction::max);
    EXPECT_EQ(values, (std::array<std::int64_t, 2>{c.size() - 1, std::int64_t{1} << 60}));
    std::array<double, 2> least{1.5 * c.rank(), -1.0 * c.rank()};
    reduce(c, std::span<double>(least), Reduction::min);
    EXPECT_EQ(least, (std::array<double, 2>{0.0, -1.0 * (c.size() - 1)}));
  }
};

struct BroadcastsFromEveryRoot {
  static constexpr const char* name = "BroadcastsFromEveryRoot";
  template <class C>
  static void check(C& c) {
    for (int root = 0; root < c.size(); ++root) {
      std::array<int, 3> values{c.rank(), 10 * c.rank(), 7};
      broadcast(c, std::as_writable_bytes(std::span(values)), root);
      EXPECT_EQ(values, (std::array<int, 3>{root, 10 * root, 7}));
    }
    broadcast(c, {}, 0);
  }
};

struct GathersBytes {
  static constexpr const char* name = "GathersBytes";
  template <class C>
  static void check(C& c) {
    const int mine = 1000 + c.rank();
    std::vector<int> all(static_cast<std::size_t>(c.size()));
    gather_bytes(c, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    for (int rank = 0; rank < c.size(); ++rank) EXPECT_EQ(all[static_cast<std::size_t>(rank)], 1000 + rank);
    barrier(c);
  }
};

struct SplitsByColorInRankOrder {
  static constexpr const char* name = "SplitsByColorInRankOrder";
  template <class C>
  static void check(C& c) {
    C parity = split(c, [](int rank) { return rank % 2; });
    C pair = split(c, [](int rank) { return rank / 2; });
    EXPECT_EQ(parity.rank(), c.rank() / 2);
    EXPECT_EQ(parity.size(), (c.size() + 1 - c.rank() % 2) / 2);
    EXPECT_EQ(pair.rank(), c.rank() % 2);

    double expected = 0;
    for (int rank = c.rank() % 2; rank < c.size(); rank += 2) expected += rank;
    EXPECT_EQ(sum_over_ranks(parity, c.rank()), expected);
    const bool alone = c.rank() % 2 == 0 && c.rank() + 1 == c.size();
    EXPECT_EQ(sum_over_ranks(pair, 1), alone ? 1 : 2);
    C nested = split(parity, [](int) { return 0; });
    EXPECT_EQ(sum_over_ranks(nested, c.rank()), expected);
  }
};

struct RecordsWhatWasAskedFor {
  static constexpr const char* name = "RecordsWhatWasAskedFor";
  template <class C>
  static void check(C& c) {
    c.monitor().options.record = true;
    std::vector<Record> announced;
    c.monitor().options.before = [&](int rank, const Record& event) {
      EXPECT_EQ(rank, c.rank());
      announced.push_back(event);
    };
    const std::int64_t n = c.size();
    const Counts counts(static_cast<std::size_t>(n), 4);
    Floats full(4 * static_cast<std::size_t>(n));
    Floats local(4);
    Floats partial(4 * static_cast<std::size_t>(n));  // each call has memory of its own: only hosts order them
    Floats reduced(4);
    Floats summed(4 * static_cast<std::size_t>(n));
    const std::vector<Segment<float>> segments{{local.data(), full.data(), counts},
                                               {local.data(), full.data(), counts}};
    const std::vector<Segment<float>> partials{{reduced.data(), partial.data(), counts},
                                               {reduced.data(), partial.data(), counts}};
    const std::vector<Segment<float>> in_place{{summed.data() + 4 * c.rank(), summed.data(), counts}};
    const std::int64_t first = c.monitor().sequence;

    all_gather(c, segments, {.what = "weights", .unit = 2}).wait();
    reduce_scatter<bf16>(c, partials, Write::accumulate, {.what = "gradients", .unit = 2}).wait();
    all_reduce<float>(c, in_place, {.unit = 1}).wait();
    sum_over_ranks(c, 1, {.what = "loss"});
    barrier(c);
    c.monitor().options.record = false;
    c.monitor().options.before = nullptr;
    barrier(c);

    const std::vector<Record> expected{
        {first, Op::all_gather, DType::f32, 32 * n, {"weights", 2}},
        {first + 1, Op::reduce_scatter, DType::bf16, 16 * n, {"gradients", 2}},
        {first + 2, Op::all_reduce, DType::f32, 16 * n, {"", 1}},
        {first + 3, Op::reduce, DType::f64, 8, {"loss", -1}},
        {first + 4, Op::barrier, DType::u8, 0, {}},
    };
    EXPECT_EQ(c.monitor().records, expected);
    EXPECT_EQ(announced, expected);
    c.monitor().records.clear();
  }
};

struct CutsLongMessages {
  static constexpr const char* name = "CutsLongMessages";
  template <class C>
  static void check(C& c) {
    const std::int64_t usual = std::exchange(c.monitor().options.message_bytes, 13);
    GathersUnevenAndEmptyPieces::check(c);
    MovesManySegmentsAsOneCollective::check(c);
    BroadcastsFromEveryRoot::check(c);
    c.monitor().options.message_bytes = usual;
  }
};

/// The last rank does something else than the others: all ranks say so, and go on afterwards.
struct ChecksFindRanksThatDisagree {
  static constexpr const char* name = "ChecksFindRanksThatDisagree";
  template <class C>
  static void check(C& c) {
    if (c.size() == 1) return;
    c.monitor().options.checks = true;
    const bool odd = c.rank() == c.size() - 1;
    const auto n = static_cast<std::size_t>(c.size());
    const Counts counts(n, 4);
    Counts other_counts(n, 4);
    other_counts[0] = 3;
    other_counts[1] = 5;
    Floats full(5 * n);
    Floats local(5);
    const std::vector<Segment<float>> usual{{local.data(), full.data(), counts}};
    const std::vector<Segment<float>> other{{local.data(), full.data(), other_counts}};
    const std::vector<Segment<std::int32_t>> integers{
        {reinterpret_cast<std::int32_t*>(local.data()), reinterpret_cast<std::int32_t*>(full.data()), counts}};

    const auto expect = [&](const std::function<void()>& call, const std::vector<std::string>& parts) {
      try {
        call();
        ADD_FAILURE() << "nobody saw that ranks disagree";
      } catch (const CollectiveError& error) {
        for (const std::string& part : parts)
          EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    };
    expect([&] { odd ? barrier(c) : all_gather(c, usual, {.unit = 3}).wait(); },
           {c.monitor().name_of(0) + " is in all_gather of unit 3 (f32, ", "is in barrier"});
    expect([&] { all_gather(c, odd ? other : usual).wait(); }, {"the counts of elements by rank differ"});
    expect([&] { odd ? all_gather(c, integers).wait() : all_gather(c, usual).wait(); }, {"(f32, ", "(i32, "});
    expect([&] { all_gather(c, usual, {.what = "weights", .unit = odd ? 4 : 3}).wait(); },
           {"weights, unit 3", "weights, unit 4"});
    expect([&] { reduce_scatter<float>(c, usual, odd ? Write::accumulate : Write::overwrite).wait(); }, {"Write"});
    if (odd) ++c.monitor().sequence;
    expect([&] { barrier(c); }, {"every rank must make the same collectives in the same order"});
    if (odd) --c.monitor().sequence;

    all_gather(c, usual).wait();
    barrier(c);
    c.monitor().options.checks = false;
  }
};

struct RefusesBrokenArguments {
  static constexpr const char* name = "RefusesBrokenArguments";
  template <class C>
  static void check(C& c) {
    const auto n = static_cast<std::size_t>(c.size());
    const Counts counts(n, 2);
    const Counts too_many(n + 1, 2);
    Floats full(2 * n);
    Floats local(2);
    const auto list = [](float* piece, float* whole, const Counts& by_rank) {
      return std::vector<Segment<float>>{{piece, whole, by_rank}};
    };
    EXPECT_THROW(all_gather(c, list(local.data(), full.data(), too_many)).wait(), LogicError);
    EXPECT_THROW(all_gather(c, list(nullptr, full.data(), counts)).wait(), LogicError);
    EXPECT_THROW(all_gather(c, list(local.data(), full.data(), Counts(n, -1))).wait(), LogicError);
    EXPECT_THROW(all_reduce<float>(c, list(local.data(), full.data(), counts)).wait(), LogicError);
    EXPECT_THROW(
        reduce_scatter<float>(c, list(full.data() + 2 * c.rank(), full.data(), counts), Write::accumulate).wait(),
        LogicError);
    EXPECT_THROW(broadcast(c, {}, c.size()), LogicError);
    EXPECT_THROW(gather_bytes(c, std::as_bytes(std::span(local)), {}), LogicError);
  }
};

using AllBehaviours =
    ::testing::Types<GathersUnevenAndEmptyPieces, GathersInPlaceWithoutCopyingItself, MovesManySegmentsAsOneCollective,
                     SumsInRankOrderToTheBit, SumsIntoItsOwnContribution, AllReduceGivesTheBitsOfReduceScatter,
                     SumsMoreThanItsScratchHolds, KeepsSeveralCollectivesInFlight,
                     AnUnwaitedRequestIsWaitedForWhenDestroyed, CombinesFewValuesInRankOrder, BroadcastsFromEveryRoot,
                     GathersBytes, SplitsByColorInRankOrder, RecordsWhatWasAskedFor, CutsLongMessages,
                     ChecksFindRanksThatDisagree, RefusesBrokenArguments>;

/// Names typed tests after their behaviour.
struct BehaviourName {
  template <class Behaviour>
  static std::string GetName(int) {
    return Behaviour::name;
  }
};

}  // namespace fsdp::comm
