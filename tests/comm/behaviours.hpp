// SPDX-License-Identifier: Apache-2.0
/// @file
/// What every backend that moves bytes must do, written once: tests of Self, Threads and Mpi run each of these.
///
/// A behaviour is a struct with a `name` and `check(communicator)`, called on every rank at once. To add one: a struct
/// here or in contract_behaviours.hpp, and its place in `AllBehaviours` there.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <comm/collectives.hpp>

namespace fsdp::comm {

/// Where values that collectives read are put: in a communicator's shared memory while one is set, else on the heap.
struct ValueMemory {
  static inline thread_local std::function<std::shared_ptr<std::byte>(std::int64_t)> shared;
  static inline thread_local std::map<void*, std::shared_ptr<std::byte>> lent;
};

template <class T>
struct ValueAllocator {
  using value_type = T;
  ValueAllocator() = default;
  template <class U>
  ValueAllocator(const ValueAllocator<U>&) {}
  T* allocate(std::size_t count) {
    if (!ValueMemory::shared || count == 0) return std::allocator<T>().allocate(count);
    auto memory = ValueMemory::shared(static_cast<std::int64_t>(count * sizeof(T)));
    if (!memory) return std::allocator<T>().allocate(count);
    T* const values = reinterpret_cast<T*>(memory.get());
    ValueMemory::lent[values] = std::move(memory);
    return values;
  }
  void deallocate(T* values, std::size_t count) {
    if (ValueMemory::lent.erase(values) == 0) std::allocator<T>().deallocate(values, count);
  }
  friend bool operator==(const ValueAllocator&, const ValueAllocator&) { return true; }
};

template <class T>
using Values = std::vector<T, ValueAllocator<T>>;
using Floats = Values<float>;
using Counts = std::vector<std::int64_t>;

/// The number of elements of ranks before `rank`.
inline std::int64_t begin_of(const Counts& counts, int rank) {
  std::int64_t begin = 0;
  for (int peer = 0; peer < rank; ++peer) begin += counts[static_cast<std::size_t>(peer)];
  return begin;
}
inline std::int64_t count_of(const Counts& counts, int rank) { return counts[static_cast<std::size_t>(rank)]; }
inline std::size_t total_of(const Counts& counts) {
  return static_cast<std::size_t>(begin_of(counts, static_cast<int>(counts.size())));
}

/// Uneven: rank r has `step` * r elements plus one, but rank 1 has none.
inline Counts uneven_counts(int size, std::int64_t step = 3) {
  Counts counts;
  for (int rank = 0; rank < size; ++rank) counts.push_back(rank == 1 ? 0 : step * rank + 1);
  return counts;
}

/// Element `index` of rank `rank`: magnitudes differ so much that the order of a sum shows in its bits.
inline float contribution(int rank, std::int64_t index) {
  const auto hash =
      static_cast<std::uint32_t>((index + 1) * 2654435761u + static_cast<std::uint32_t>(rank) * 40503u * 65537u);
  const float scale = static_cast<float>(1u << (hash >> 27 & 15u));
  return (static_cast<float>(hash & 0xffffu) / 65536.0f - 0.5f) * scale;
}
inline Floats contributions(int rank, std::size_t elements) {
  Floats values(elements);
  for (std::size_t i = 0; i < elements; ++i) values[i] = contribution(rank, static_cast<std::int64_t>(i));
  return values;
}

/// The sum over ranks of element `index`, as the contract says it is made.
template <class Wire>
float sum_of_contributions(int size, std::int64_t index) {
  float sum = static_cast<float>(Wire(contribution(0, index)));
  for (int rank = 1; rank < size; ++rank) sum += static_cast<float>(Wire(contribution(rank, index)));
  return sum;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

struct GathersUnevenAndEmptyPieces {
  static constexpr const char* name = "GathersUnevenAndEmptyPieces";
  template <class C>
  static void check(C& c) {
    const Counts counts = uneven_counts(c.size());
    Values<std::int32_t> full(total_of(counts), -1);
    Values<std::int32_t> local(static_cast<std::size_t>(count_of(counts, c.rank())) + 1, c.rank());
    const std::vector<Segment<std::int32_t>> segments{{local.data(), full.data(), counts}};

    all_gather(c, segments).wait();

    Values<std::int32_t> expected;
    for (int rank = 0; rank < c.size(); ++rank)
      expected.insert(expected.end(), static_cast<std::size_t>(count_of(counts, rank)), rank);
    EXPECT_EQ(full, expected);
  }
};

struct GathersInPlaceWithoutCopyingItself {
  static constexpr const char* name = "GathersInPlaceWithoutCopyingItself";
  template <class C>
  static void check(C& c) {
    const Counts counts(static_cast<std::size_t>(c.size()), 5);
    Values<bf16> full(5 * static_cast<std::size_t>(c.size()));
    bf16* const local = full.data() + 5 * c.rank();
    std::fill_n(local, 5, bf16(static_cast<float>(c.rank())));
    const std::int64_t bytes_before = c.monitor().totals.copied_bytes;

    all_gather(c, std::vector<Segment<bf16>>{{local, full.data(), counts}}).wait();

    for (std::size_t i = 0; i < full.size(); ++i) EXPECT_EQ(static_cast<float>(full[i]), static_cast<float>(i / 5));
    EXPECT_EQ(c.monitor().totals.copied_bytes - bytes_before, 2 * 5 * (c.size() - 1));
  }
};

struct MovesManySegmentsAsOneCollective {
  static constexpr const char* name = "MovesManySegmentsAsOneCollective";
  template <class C>
  static void check(C& c) {
    constexpr int number = 20;
    std::vector<Counts> counts;
    std::vector<Floats> full;
    std::vector<Floats> local;
    std::vector<Segment<float>> segments;
    for (int i = 0; i < number; ++i) {
      counts.push_back(i == 7 ? Counts(static_cast<std::size_t>(c.size()), 0) : uneven_counts(c.size(), i));
      full.emplace_back(total_of(counts.back()));
      local.emplace_back(static_cast<std::size_t>(count_of(counts.back(), c.rank())),
                         static_cast<float>(100 * i + c.rank()));
    }
    for (std::size_t i = 0; i < number; ++i) segments.push_back({local[i].data(), full[i].data(), counts[i]});
    segments[7] = {nullptr, nullptr, counts[7]};
    const std::int64_t collectives_before = c.monitor().totals.collectives;

    all_gather(c, segments).wait();

    EXPECT_EQ(c.monitor().totals.collectives - collectives_before, 1);
    for (std::size_t i = 0; i < number; ++i)
      for (int rank = 0; rank < c.size(); ++rank)
        for (std::int64_t at = 0; at < count_of(counts[i], rank); ++at)
          EXPECT_EQ(full[i][static_cast<std::size_t>(begin_of(counts[i], rank) + at)],
                    static_cast<float>(100 * static_cast<int>(i) + rank));
  }
};

struct SumsInRankOrderToTheBit {
  static constexpr const char* name = "SumsInRankOrderToTheBit";
  template <class Wire, class C>
  static void check_wire(C& c, Write write) {
    const Counts counts = uneven_counts(c.size(), 5000);
    const Floats full = contributions(c.rank(), total_of(counts));
    const std::int64_t begin = begin_of(counts, c.rank());
    Floats local(static_cast<std::size_t>(count_of(counts, c.rank())), 0.1f);
    const std::vector<Segment<float>> segments{{local.data(), const_cast<float*>(full.data()), counts}};

    reduce_scatter<Wire>(c, segments, write).wait();

    Floats expected;
    for (std::int64_t i = 0; i < count_of(counts, c.rank()); ++i) {
      const float sum = sum_of_contributions<Wire>(c.size(), begin + i);
      expected.push_back(write == Write::overwrite ? sum : 0.1f + sum);
    }
    EXPECT_TRUE(same_bits(local, expected)) << "wire " << name_of(dtype_of<Wire>());
  }
  template <class C>
  static void check(C& c) {
    check_wire<float>(c, Write::overwrite);
    check_wire<bf16>(c, Write::overwrite);
    check_wire<float>(c, Write::accumulate);
    check_wire<bf16>(c, Write::accumulate);
  }
};

struct SumsIntoItsOwnContribution {
  static constexpr const char* name = "SumsIntoItsOwnContribution";
  template <class C>
  static void check(C& c) {
    const Counts counts = uneven_counts(c.size(), 100);
    Floats full = contributions(c.rank(), total_of(counts));
    const std::int64_t begin = begin_of(counts, c.rank());

    reduce_scatter<float>(c, std::vector<Segment<float>>{{full.data() + begin, full.data(), counts}}, Write::overwrite)
        .wait();

    for (std::int64_t i = 0; i < static_cast<std::int64_t>(full.size()); ++i) {
      const bool own = i >= begin && i < begin + count_of(counts, c.rank());
      EXPECT_EQ(full[static_cast<std::size_t>(i)],
                own ? sum_of_contributions<float>(c.size(), i) : contribution(c.rank(), i));
    }
  }
};

struct AllReduceGivesTheBitsOfReduceScatter {
  static constexpr const char* name = "AllReduceGivesTheBitsOfReduceScatter";
  template <class Wire, class C>
  static void check_wire(C& c) {
    const Counts counts = uneven_counts(c.size(), 2000);
    const Counts more_counts(static_cast<std::size_t>(c.size()), 17);
    Floats full = contributions(c.rank(), total_of(counts));
    Floats more = contributions(c.rank(), total_of(more_counts));

    all_reduce<Wire>(c, std::vector<Segment<float>>{{full.data() + begin_of(counts, c.rank()), full.data(), counts},
                                                    {more.data() + 17 * c.rank(), more.data(), more_counts}})
        .wait();

    Floats expected;
    for (std::size_t i = 0; i < full.size(); ++i)
      expected.push_back(sum_of_contributions<Wire>(c.size(), static_cast<std::int64_t>(i)));
    EXPECT_TRUE(same_bits(full, expected));
    expected.clear();
    for (std::size_t i = 0; i < more.size(); ++i)
      expected.push_back(sum_of_contributions<Wire>(c.size(), static_cast<std::int64_t>(i)));
    EXPECT_TRUE(same_bits(more, expected));
  }
  template <class C>
  static void check(C& c) {
    check_wire<float>(c);
    check_wire<bf16>(c);
  }
};

/// Several pieces of scratch for each peer.
struct SumsMoreThanItsScratchHolds {
  static constexpr const char* name = "SumsMoreThanItsScratchHolds";
  template <class C>
  static void check(C& c) {
    const Counts counts(static_cast<std::size_t>(c.size()), (3 << 20) / c.size() + 11);
    Floats full = contributions(c.rank(), total_of(counts));
    Floats local(static_cast<std::size_t>(counts[0]));

    reduce_scatter<bf16>(c, std::vector<Segment<float>>{{local.data(), full.data(), counts}}, Write::overwrite).wait();

    Floats expected;
    for (std::int64_t i = 0; i < counts[0]; ++i)
      expected.push_back(sum_of_contributions<bf16>(c.size(), begin_of(counts, c.rank()) + i));
    EXPECT_TRUE(same_bits(local, expected));
  }
};

}  // namespace fsdp::comm
