// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a communication backend is: the concept, segments, requests and errors.
///
/// A backend moves bytes and nothing else. Recording, checks and labels live in comm/collectives.hpp, the one layer of
/// free functions that everything above calls; they keep their state in the Monitor that each backend carries. To add a
/// backend: a header beside this one that passes check_communicator, its row in tests/comm/.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <comm/monitor.hpp>
#include <fsdp/core/dtype.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/core/tensor.hpp>

namespace fsdp::comm {

/// One tensor's part in a collective. Rank r's piece stands at elements [counts[0] + ... + counts[r-1], + counts[r]) of
/// `full`; counts may differ and may be 0. `local` is this rank's piece; it may lie in its place inside `full`.
template <class T>
struct Segment {
  T* local = nullptr;
  T* full = nullptr;
  std::span<const std::int64_t> counts;  ///< one per rank; must outlive the request
};

/// What a reduction's `full` is worth to the caller afterwards. Of spent contributions a communicator may use this
/// rank's place for the sum; the others' places stay.
enum class Contributions : std::uint8_t { kept, spent };

/// Reduction of small values, in rank order.
enum class Reduction : std::uint8_t { sum, max, min };

/// The rest of a collective that was started. Destroying one that was not waited for waits for it.
///
/// `test` makes progress and says whether all is done; `wait` returns when this rank's results are in place and no peer
/// reads or writes this rank's memory any more, or throws CollectiveError at the deadline or when another rank has
/// failed.
template <class R>
concept AsyncRequest = std::movable<R> && !std::copyable<R> && std::default_initializable<R> && requires(R request) {
  { request.test() } -> std::same_as<bool>;
  request.wait();
};

/// A communication backend. One object belongs to one rank; all calls are collective and come in the same order on all
/// ranks.
///  - all_gather: every `local` goes to its place in every rank's `full`.
///  - reduce_scatter<Wire>: local = (or +=) the sum over ranks of their `full` at this rank's place. Each contribution
///  is rounded
///    to Wire, sums are made in T in rank order: the same bits whatever the backend. One that can do with less memory
///    or fewer calls where contributions are spent takes Contributions as a third argument.
///  - all_reduce<Wire>: reduce_scatter into each rank's place of its own `full`, then all_gather: `local` must lie
///  there.
///  - reduce: a few values (losses, counts, norms), blocking, in rank order.
///  - split: ranks with equal `color` form a new communicator, ordered by their rank here.
template <class C>
concept Communicator = std::movable<C> && AsyncRequest<typename C::Request> &&
    requires(C c, const C constant, std::span<const Segment<float>> segments, std::span<double> values,
             std::span<std::int64_t> counts, std::span<std::byte> bytes, Write write, Reduction reduction) {
  typename C::Device;
  { constant.rank() } -> std::convertible_to<int>;
  { constant.size() } -> std::convertible_to<int>;
  { c.all_gather(segments) } -> std::same_as<typename C::Request>;
  { c.template reduce_scatter<float>(segments, write) } -> std::same_as<typename C::Request>;
  { c.template all_reduce<float>(segments) } -> std::same_as<typename C::Request>;
  c.reduce(values, reduction);
  c.reduce(counts, reduction);
  c.broadcast(bytes, int{});
  c.gather_bytes(std::span<const std::byte>{}, bytes);
  c.barrier();
  { c.split(int{}) } -> std::same_as<C>;
  { c.monitor() } -> std::same_as<Monitor&>;
};

/// What a backend of an asynchronous device has besides: its collectives run on a queue of their own.
///  - after: the next collective starts after `event`; several add up.
///  - Request::done: when the results are in place and no peer uses this rank's memory any more. The host waits for the
///  peers' hosts at most.
///  - wait_for: the host waits for `event`; CollectiveError at the deadline or when another rank has failed.
template <class C>
concept QueuedCommunicator = requires(C c, typename C::Request request, const typename C::Device::Event& event) {
  c.after(event);
  { request.done() } -> std::same_as<typename C::Device::Event>;
  c.wait_for(event);
};

/// Says in words what a type lacks to be a communication backend. Call it where the type is first used.
template <class C>
consteval bool check_communicator() {
  static_assert(std::movable<C>,
                "fsdp: a communicator belongs to one rank and is moved into its owner; give it a move "
                "constructor and a move assignment");
  static_assert(
      requires { typename C::Device; },
      "fsdp: a communicator says whose memory it moves; add `using Device = ...`, for instance fsdp::device::Cpu");
  static_assert(
      requires { requires AsyncRequest<typename C::Request>; },
      "fsdp: a communicator lacks Request, the rest of a started collective: a default-constructible type that can "
      "be moved, not copied, with `bool test()` and `void wait()`");
  static_assert(
      requires(const C c) {
        { c.rank() } -> std::convertible_to<int>;
        { c.size() } -> std::convertible_to<int>;
      },
      "fsdp: a communicator lacks int rank() const or int size() const");
  static_assert(
      requires(C c, std::span<const Segment<float>> segments) { c.all_gather(segments); },
      "fsdp: a communicator lacks Request all_gather(std::span<const Segment<T>>); see comm/communicator.hpp");
  static_assert(
      requires(C c, std::span<const Segment<float>> segments, Write write) {
        c.template reduce_scatter<float>(segments, write);
      },
      "fsdp: a communicator lacks template <class Wire> Request reduce_scatter(std::span<const Segment<float>>, "
      "Write); it sums in float, in rank order");
  static_assert(
      requires(C c, std::span<const Segment<float>> segments) { c.template all_reduce<float>(segments); },
      "fsdp: a communicator lacks template <class Wire> Request all_reduce(std::span<const Segment<float>>); it is "
      "a reduce_scatter and an all_gather in place");
  static_assert(
      requires(C c, std::span<double> values, std::span<std::int64_t> counts, Reduction reduction) {
        c.reduce(values, reduction);
        c.reduce(counts, reduction);
      },
      "fsdp: a communicator lacks reduce(std::span<double> or std::span<std::int64_t>, Reduction), which combines "
      "a few values in rank order");
  static_assert(
      requires(C c, std::span<std::byte> bytes) {
        c.broadcast(bytes, int{});
        c.gather_bytes(std::span<const std::byte>{}, bytes);
        c.barrier();
      },
      "fsdp: a communicator lacks broadcast(bytes, root), gather_bytes(mine, all) or barrier()");
  static_assert(
      requires(C c) {
        { c.split(int{}) } -> std::same_as<C>;
      },
      "fsdp: a communicator lacks C split(int color); ranks of equal color form a new communicator");
  static_assert(
      requires(C c) {
        { c.monitor() } -> std::same_as<Monitor&>;
      },
      "fsdp: a communicator lacks Monitor& monitor(), where comm/collectives.hpp keeps options, times and records");
  static_assert(
      !C::Device::asynchronous || QueuedCommunicator<C>,
      "fsdp: a communicator of an asynchronous device lacks after(event), wait_for(event) or Request::done(), "
      "which order its queue with the device's; see QueuedCommunicator in comm/communicator.hpp");
  return Communicator<C>;
}

/// Whether a backend can reduce with this wire type. Backends specialise it; comm/collectives.hpp asserts it.
template <class C, class Wire>
inline constexpr bool supports_wire = std::is_same_v<Wire, float>;

}  // namespace fsdp::comm
