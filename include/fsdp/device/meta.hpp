// SPDX-License-Identifier: Apache-2.0
/// @file
/// A device without storage: every operation is checked and counted, none is done.
///
/// A model on Meta with comm::Simulated is the dry run. Scratch is that of the device that it stands for: the counting
/// stream has that device's Planner, and so finds the same scratch(planner, operation): of the CPU, through the same
/// library descriptors; of Cuda, through functions of the problem, on any machine. So the planned peak is exact.
/// Tensors of Meta must never be dereferenced.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <fsdp/core/checked.hpp>
#include <fsdp/device/cpu.hpp>
#include <fsdp/device/cuda.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/operations.hpp>
#include <fsdp/device/queue.hpp>

namespace fsdp::device {

template <class Target>
class MetaStream;

/// Stands for `Target`, a device that has a Planner: Target::Planner(threads), a base of its stream.
template <class Target>
struct MetaOf {
  static constexpr std::string_view name = "meta";
  static constexpr bool counts_only = true;
  static constexpr bool asynchronous = false;
  static constexpr bool overlaps = Target::overlaps;
  static constexpr bool host_memory = Target::host_memory;
  static constexpr std::int64_t flops_per_byte = device::flops_per_byte<Target>;
  using Arena = device::Arena<MetaOf>;
  using Event = ImmediateEvent;
  using Queue = ImmediateQueue;
  using Stream = MetaStream<Target>;

  /// Addresses that no process maps, so that views can be compared and never read.
  static std::byte* unbacked(std::int64_t offset) {
    return reinterpret_cast<std::byte*>((std::uintptr_t{1} << 62) + static_cast<std::uintptr_t>(offset));
  }
  /// Ranges of such addresses that do not overlap, so that views of different blocks differ.
  static std::byte* allocate(std::int64_t bytes) {
    static std::atomic<std::uintptr_t> next{std::uintptr_t{1} << 60};
    return reinterpret_cast<std::byte*>(next.fetch_add(static_cast<std::uintptr_t>(round_up(bytes, alignment))));
  }
  static void deallocate(std::byte*, std::int64_t) {}
  static void move(Queue&, const std::byte*, std::byte*, std::int64_t) {}
  static void poison(std::byte*, std::int64_t) {}
  static void unpoison(std::byte*, std::int64_t) {}
};

/// Plans for a stream of `threads`, which may be more than this machine has.
template <class Target>
class MetaStream : public ImmediateQueue, public Target::Planner {
 public:
  using Arena = typename MetaOf<Target>::Arena;

  /// Scratch is charged to `arena`.
  MetaStream(Arena& arena, int threads) : Target::Planner(threads), arena_(&arena) {}

  Arena& arena() const { return *arena_; }
  Counters counters;

 private:
  Arena* arena_;
};

/// Every operation: enqueue has checked and counted it, and taken the scratch that Target's kernel would take.
template <class Target, class Op>
void run(MetaStream<Target>&, const Op&, Scratch = {}) {}

using Meta = MetaOf<Cpu>;

FSDP_ENQUEUE(extern template, Meta::Stream)

namespace detail {
template <class Device>
struct Planning {
  using Meta = MetaOf<Cpu>;
};
template <>
struct Planning<Cuda> {
  using Meta = MetaOf<Cuda>;
};
template <class Target>
struct Planning<MetaOf<Target>> {
  using Meta = MetaOf<Target>;
};
}  // namespace detail

/// What plans for a device: Cuda has its own, a MetaOf is one, any other device is planned for as a CPU.
template <class Device>
using MetaFor = typename detail::Planning<Device>::Meta;

}  // namespace fsdp::device
