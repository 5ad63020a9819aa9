// SPDX-License-Identifier: Apache-2.0
/// @file
/// The concept of a device: memory and a stream; and the queue and event of synchronous devices.
/// tessera/fsdp/device/operation.hpp describes how a device implements operations.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace fsdp::device {

/// A queue's scheduling priority, for devices that support it: the second argument of the queue's constructor.
enum class Priority : std::uint8_t {
  usual,
  first  ///< for collectives: more work depends on them than on a block of a matmul
};

/// A point in a queue's work, which has always been reached already.
struct ImmediateEvent {
  bool happened() const { return true; }
};

/// A queue whose work is complete when `enqueue` returns.
class ImmediateQueue {
 public:
  ImmediateQueue() = default;
  /// Ignores the name.
  explicit ImmediateQueue(std::string_view) {}

  /// Returns the point after all work enqueued so far.
  ImmediateEvent record() { return {}; }
  /// Makes work enqueued after this call start after `event`; does not block the host.
  void wait(ImmediateEvent) {}
  /// Blocks the host until all enqueued work is done.
  void synchronize() {}
};

namespace detail {

template <class D>
concept Named = requires {
  { D::name } -> std::convertible_to<std::string_view>;
  requires D::counts_only || !D::counts_only;
};

template <class D>
concept Memory = requires(std::byte* data, std::int64_t bytes, typename D::Queue& queue) {
  { D::allocate(bytes) } -> std::same_as<std::byte*>;
  { D::unbacked(bytes) } -> std::same_as<std::byte*>;
  D::deallocate(data, bytes);
  D::poison(data, bytes);
  D::unpoison(data, bytes);
  D::move(queue, data, data, bytes);
};

template <class D>
concept HasArena = std::same_as<typename D::Arena, Arena<D>>;

template <class D>
concept HasQueue = requires(typename D::Queue& queue, const typename D::Event& event) {
  typename std::bool_constant<D::asynchronous>;
  typename std::bool_constant<D::overlaps>;
  typename std::bool_constant<D::host_memory>;
  { queue.record() } -> std::same_as<typename D::Event>;
  queue.wait(event);
  queue.synchronize();
  { event.happened() } -> std::same_as<bool>;
}
&&std::copyable<typename D::Event>&& std::default_initializable<typename D::Event>&&
    std::constructible_from<typename D::Queue, std::string_view>;

template <class D>
concept HasStream = requires(typename D::Stream& stream) {
  { stream.arena() } -> std::same_as<Arena<D>&>;
  { stream.threads() } -> std::convertible_to<int>;
  { stream.counters } -> std::same_as<Counters&>;
}
&&std::move_constructible<typename D::Stream>&& std::derived_from<typename D::Stream, typename D::Queue>;

template <class D>
concept MovesForPeers = !D::asynchronous || requires(typename D::Queue & queue, const std::byte* from, std::byte* to,
                                                     std::span<const std::byte* const> parts, float* sum) {
  D::round(queue, sum, DType::bf16, std::int64_t{}, to);
  D::sum_in_order(queue, parts, DType::f32, DType::f32, std::int64_t{}, Write::overwrite, sum);
};

FSDP_HAS_MEMBER(Graph)
FSDP_HAS_MEMBER(capture)
FSDP_HAS_MEMBER(flops_per_byte)
FSDP_HAS_MEMBER(free_bytes)

}  // namespace detail

/// A device: see the head of this file.
template <class D>
concept Device = detail::Named<D> && detail::Memory<D> && detail::HasArena<D> && detail::HasQueue<D> &&
    detail::HasStream<D> && detail::MovesForPeers<D>;

/// A device with graph capture. `capture(queue, work)` calls `work` and records the work that it enqueues on `queue`,
/// and on queues that wait for its events, instead of running it. `launch(queue)` of the returned graph replays all of
/// it after the work already in `queue`, any number of times. Until `work` returns, queues may wait only for events
/// recorded during the capture, and the host may not wait for any; at the end, `queue` must have waited for all other
/// queues.
template <class D>
concept Captures = requires(typename D::Queue& queue, const typename D::Graph& graph, void (*work)()) {
  { D::capture(queue, work) } -> std::same_as<typename D::Graph>;
  graph.launch(queue);
}
&&std::movable<typename D::Graph>&& std::default_initializable<typename D::Graph>;

/// Explains in static_assert messages which requirements of a device a type does not meet. Call it where the type is
/// first used.
template <class D>
consteval bool check_device() {
  using namespace detail;
  static_assert(
      Named<D>,
      "fsdp: a device lacks its name or kind; give it static constexpr std::string_view name and bool counts_only");
  static_assert(Memory<D>,
                "fsdp: a device lacks memory; it needs static allocate(bytes), deallocate(data, bytes), "
                "poison, unpoison, unbacked(offset) and move, as tessera/fsdp/device/cpu.hpp has them");
  static_assert(HasArena<D>, "fsdp: a device lacks its arena; write using Arena = device::Arena<ThisDevice>");
  static_assert(HasQueue<D>,
                "fsdp: a device says whether its operations are queued, and how they are ordered; give it static "
                "constexpr bool asynchronous, overlaps and host_memory, a copyable Event, and a Queue(name) with "
                "record(), wait(event) and synchronize(), as tessera/fsdp/device/device.hpp has them");
  static_assert(HasStream<D>, "fsdp: a device lacks a movable Stream, a Queue with arena(), threads() and counters");
  static_assert(MovesForPeers<D>,
                "fsdp: an asynchronous device lacks what communicators queue on it: "
                "round(queue, from, wire, count, to) and sum_in_order(queue, parts, stored, wire, count, write, sum)");
  static_assert(
      (!has_Graph<D>() && !has_capture<D>()) || Captures<D>,
      "fsdp: a device has a Graph or a capture, and not both as capturing needs them: a movable Graph with "
      "launch(queue) const, and static Graph capture(queue, work); see Captures in tessera/fsdp/device/device.hpp");
  static_assert(
      !has_flops_per_byte<D>() || requires { typename std::integral_constant<std::int64_t, D::flops_per_byte>; },
      "fsdp: a device has a flops_per_byte that is no static constexpr std::int64_t");
  static_assert(
      !has_free_bytes<D>() ||
          requires {
            { D::free_bytes() } -> std::same_as<std::int64_t>;
          },
      "fsdp: a device has a free_bytes that is no static std::int64_t free_bytes(), by which --tiling budget:auto "
      "plans");
  return Device<D>;
}

/// A named range of this thread for profilers; does nothing on a device without a Range.
template <class D>
struct ProfilerRange {
  /// `name` is not called.
  template <class Name>
  explicit ProfilerRange(const Name&) {}
};
/// The same on a device that has ranges.
template <class D>
requires requires { typename D::Range; }
struct ProfilerRange<D> {
  /// `name` returns a string.
  template <class Name>
  explicit ProfilerRange(const Name& name) : range(name().c_str()) {}
  typename D::Range range;  ///< lives as long as this
};

}  // namespace fsdp::device
