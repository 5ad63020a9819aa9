// SPDX-License-Identifier: Apache-2.0
/// @file
/// Values that the checks of communicators send and receive, the memory of these values, and the sums that the contract
/// requires.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace fsdp::testing {

/// The memory of values that collectives access. While `shared` is set, it provides that memory (a communicator's
/// shared memory, or a device's memory); otherwise the heap does. Set it on each rank's thread around a check.
struct ValueMemory {
  static inline thread_local std::function<std::shared_ptr<std::byte>(std::int64_t)> shared;
  static inline thread_local std::map<void*, std::shared_ptr<std::byte>> lent;
};

/// An allocator for containers, which allocates from ValueMemory.
template <class T>
struct ValueAllocator {
  using value_type = T;
  ValueAllocator() = default;
  /// All allocators are interchangeable.
  template <class U>
  ValueAllocator(const ValueAllocator<U>&) {}
  /// Allocates from ValueMemory::shared if that is set and has memory, otherwise from the heap.
  T* allocate(std::size_t count) {
    if (!ValueMemory::shared || count == 0) return std::allocator<T>().allocate(count);
    auto memory = ValueMemory::shared(static_cast<std::int64_t>(count * sizeof(T)));
    if (!memory) return std::allocator<T>().allocate(count);
    T* const values = reinterpret_cast<T*>(memory.get());
    ValueMemory::lent[values] = std::move(memory);
    return values;
  }
  /// Frees the memory.
  void deallocate(T* values, std::size_t count) {
    if (ValueMemory::lent.erase(values) == 0) std::allocator<T>().deallocate(values, count);
  }
  friend bool operator==(const ValueAllocator&, const ValueAllocator&) { return true; }
};

template <class T>
using Values = std::vector<T, ValueAllocator<T>>;
using Floats = Values<float>;
using Counts = std::vector<std::int64_t>;

/// Returns the total number of elements of the ranks before `rank`.
inline std::int64_t begin_of(const Counts& counts, int rank) {
  std::int64_t begin = 0;
  for (int peer = 0; peer < rank; ++peer) begin += counts[static_cast<std::size_t>(peer)];
  return begin;
}
/// Returns the number of elements of `rank`.
inline std::int64_t count_of(const Counts& counts, int rank) { return counts[static_cast<std::size_t>(rank)]; }
/// Returns the total number of elements of all ranks.
inline std::size_t total_of(const Counts& counts) {
  return static_cast<std::size_t>(begin_of(counts, static_cast<int>(counts.size())));
}

/// Returns `each` elements for every rank.
inline Counts equal_counts(int size, std::int64_t each) { return Counts(static_cast<std::size_t>(size), each); }
/// Returns uneven counts: rank r has `step` * r + 1 elements, except rank 1, which has none.
inline Counts uneven_counts(int size, std::int64_t step = 3) {
  Counts counts;
  for (int rank = 0; rank < size; ++rank) counts.push_back(rank == 1 ? 0 : step * rank + 1);
  return counts;
}

/// Returns element `index` of rank `rank`. Magnitudes differ so much that the order of summation changes the result.
inline float contribution(int rank, std::int64_t index) {
  const auto hash =
      static_cast<std::uint32_t>((index + 1) * 2654435761u + static_cast<std::uint32_t>(rank) * 40503u * 65537u);
  const float scale = static_cast<float>(1u << (hash >> 27 & 15u));
  return (static_cast<float>(hash & 0xffffu) / 65536.0f - 0.5f) * scale;
}
/// Returns a rank's first `elements` elements.
inline Floats contributions(int rank, std::size_t elements) {
  Floats values(elements);
  for (std::size_t i = 0; i < elements; ++i) values[i] = contribution(rank, static_cast<std::int64_t>(i));
  return values;
}

/// Returns elements [begin, begin + count) of the sum over ranks, computed as the contract requires.
template <class Wire>
std::vector<float> sums_of_contributions(int size, std::int64_t begin, std::int64_t count) {
  std::vector<float> sums;
  for (std::int64_t i = begin; i < begin + count; ++i) {
    float& sum = sums.emplace_back(static_cast<float>(Wire(contribution(0, i))));
    for (int rank = 1; rank < size; ++rank) sum += static_cast<float>(Wire(contribution(rank, i)));
  }
  return sums;
}

}  // namespace fsdp::testing
