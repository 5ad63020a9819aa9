// SPDX-License-Identifier: Apache-2.0
/// @file
/// The concept of a communication backend, with its segments, exchanges and requests.
///
/// A backend only moves bytes. Recording, checks and labels are implemented in tessera/comm/collectives.hpp, the layer
/// of free functions that all other code calls; these functions store their state in each backend's Monitor. To add a
/// backend, write a header next to this one that passes check_communicator, and add its row in tests/comm/.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp::comm {

/// One tensor's part in a collective. With begin = counts[0] + ... + counts[r-1], rank r's piece is elements
/// [begin, begin + counts[r]) of `full`. Counts may differ and may be 0. `local` is this rank's piece; it may alias its
/// place inside `full`.
template <class T>
struct Segment {
  T* local = nullptr;                    ///< this rank's piece
  T* full = nullptr;                     ///< the pieces of all ranks
  std::span<const std::int64_t> counts;  ///< elements of each rank's piece; must outlive the request
};

/// One tensor's part in an all_to_all. This rank sends each rank r a piece of send_counts[r] elements of `send` and
/// receives one of receive_counts[r] elements from it; pieces are contiguous, in rank order. Counts may differ and may
/// be 0; the number of elements that rank r sends to s must equal the number that s receives from r. No `receive` may
/// overlap other memory of
/// the call.
template <class T>
struct Exchange {
  const T* send = nullptr;                       ///< the pieces for all ranks
  std::span<const std::int64_t> send_counts;     ///< elements of the piece for each rank; must outlive the request
  T* receive = nullptr;                          ///< the pieces from all ranks
  std::span<const std::int64_t> receive_counts;  ///< elements of the piece from each rank; must outlive the request
};

/// Whether a reduction must preserve `full` (kept) or not (spent). If contributions are spent, the communicator may
/// overwrite this rank's piece of `full`, which it uses as scratch for the sum; the other ranks' pieces are unchanged.
enum class Contributions : std::uint8_t { kept, spent };

/// The order in which a reduce_scatter adds. `ranks`: every contribution in rank order, whatever the backend, so that
/// results are bit-identical on all backends. `any`: the backend's own order if it has one, as Nccl does for float
/// contributions.
enum class SumOrder : std::uint8_t { any, ranks };

/// How `reduce` combines small values, in rank order.
enum class Reduction : std::uint8_t { sum, max, min };

/// A handle of a started collective. Its destructor waits for the collective unless the caller has.
///
/// `test` makes progress and returns whether the collective is complete. `wait` returns when this rank's results are in
/// place and no peer reads or writes this rank's memory any more; it throws CollectiveError at the deadline or when
/// another rank has failed.
template <class R>
concept AsyncRequest = std::movable<R> && !std::copyable<R> && std::default_initializable<R> && requires(R request) {
  { request.test() } -> std::same_as<bool>;
  request.wait();
};

namespace detail {

template <class C, class T>
concept Gathers = requires(C c, std::span<const Segment<T>> segments) {
  { c.all_gather(segments) } -> std::same_as<typename C::Request>;
};

template <class C, class T>
concept Exchanges = requires(C c, std::span<const Exchange<T>> exchanges) {
  { c.all_to_all(exchanges) } -> std::same_as<typename C::Request>;
};

template <class C>
concept Scatters = requires(C c, std::span<const Segment<float>> segments, Write write) {
  { c.template reduce_scatter<float>(segments, write) } -> std::same_as<typename C::Request>;
};

/// Requires that a reduce_scatter overload with these additional arguments (Contributions, or Contributions and
/// SumOrder) either does not exist or returns a Request.
template <class C, class... More>
concept ScattersWith = !requires(C c, std::span<const Segment<float>> segments, Write write, More... more) {
  c.template reduce_scatter<float>(segments, write, more...);
}
|| requires(C c, std::span<const Segment<float>> segments, Write write, More... more) {
  { c.template reduce_scatter<float>(segments, write, more...) } -> std::same_as<typename C::Request>;
};

template <class C>
concept Reduces = requires(C c, std::span<const Segment<float>> segments) {
  { c.template all_reduce<float>(segments) } -> std::same_as<typename C::Request>;
};

}  // namespace detail

/// A communication backend. One object belongs to one rank. All calls are collective: all ranks make the same calls in
/// the same order.
///  - all_gather: gathers every `local` into its place in every rank's `full`.
///  - reduce_scatter<Wire>: sums this rank's piece of all ranks' `full` into `local`, which is overwritten or
///  accumulated into. Contributions are rounded to Wire and added in float in rank order, ((c0 + c1) + c2) + ... or
///  ((local + c0) + c1) + ..., so that results are bit-identical on all backends. A backend that saves memory or calls
///  when contributions are spent takes Contributions as a third argument. One that has its own order of summation (only
///  Nccl, for float contributions) takes SumOrder as a fourth, and so does a wrapper around such a backend.
///  - all_reduce<Wire>: reduce_scatter into each rank's piece of its own `full`, then all_gather. `local` must be in
///  place inside `full`.
///  - reduce: reduces a few values (losses, counts, norms) in rank order. Blocks.
///  - split: ranks with equal `color` form a new communicator, ordered by their rank here.
///  - end_run (optional): called once when a run on it ends (a ShardedModule is destroyed), also if an error ends it;
///  `axis` is "world", or "across" or "shard" for a communicator that `split` made. It calls no collective.
template <class C>
concept Communicator = std::movable<C> && AsyncRequest<typename C::Request> && detail::Gathers<C, float> &&
    detail::Gathers<C, bf16> && detail::Scatters<C> && detail::ScattersWith<C, Contributions> &&
    detail::ScattersWith<C, Contributions, SumOrder> && detail::Reduces<C> &&
    requires(C c, const C constant, std::span<double> values, std::span<std::int64_t> counts,
             std::span<std::byte> bytes, Reduction reduction) {
  typename C::Device;
  { constant.rank() } -> std::convertible_to<int>;
  { constant.size() } -> std::convertible_to<int>;
  c.reduce(values, reduction);
  c.reduce(counts, reduction);
  c.broadcast(bytes, int{});
  c.gather_bytes(std::span<const std::byte>{}, bytes);
  c.barrier();
  { c.split(int{}) } -> std::same_as<C>;
  { c.monitor() } -> std::same_as<Monitor&>;
};

/// The additional requirements on a backend of an asynchronous device, whose collectives run on their own queue.
///  - after: makes the next collective start after `event`. Several calls accumulate: it then starts after all of the
///  events.
///  - Request::done: returns the event after which the results are in place and no peer uses this rank's memory any
///  more. The host may wait for the peers' hosts, never for a device.
///  - wait_for: blocks the host until `event`. Throws CollectiveError at the deadline or when another rank has failed.
template <class C>
concept QueuedCommunicator = requires(C c, typename C::Request request, const typename C::Device::Event& event) {
  c.after(event);
  { request.done() } -> std::same_as<typename C::Device::Event>;
  c.wait_for(event);
};

/// A communicator that can exchange pieces, which stacks that shard sequences require.
///  - all_to_all: sends every piece of every `send` to its rank, into its place in that rank's `receive`.
template <class C>
concept ExchangingCommunicator = Communicator<C> && detail::Exchanges<C, float> && detail::Exchanges<C, bf16>;

namespace detail {

FSDP_HAS_MEMBER(all_to_all)
FSDP_HAS_MEMBER(scratch_bytes)
FSDP_HAS_MEMBER(scratch_bytes_for)
FSDP_HAS_MEMBER(shared_memory)
FSDP_HAS_MEMBER(can_be_captured)
FSDP_HAS_MEMBER(device_for_each_rank)
FSDP_HAS_MEMBER(end_run)

/// Whether a backend's optional members have the right types; docs/joints/communicator.md lists them.
template <class C>
consteval bool check_optional_parts() {
  if constexpr (requires { typename C::Request; })
    static_assert(
        !has_all_to_all<C>() || (Exchanges<C, float> && Exchanges<C, bf16>),
        "fsdp: a communicator has an all_to_all that is no template <class T> Request "
        "all_to_all(std::span<const Exchange<T>>), which starts it and returns the Request that waits for it");
  static_assert(
      !has_scratch_bytes<C>() ||
          requires(const C c) {
            { c.scratch_bytes() } -> std::same_as<std::int64_t>;
          },
      "fsdp: a communicator has a scratch_bytes that is no std::int64_t scratch_bytes() const, the bytes that it holds "
      "now, which plans count");
  static_assert(
      !has_scratch_bytes_for<C>() || requires { static_cast<std::int64_t (*)(int)>(&C::scratch_bytes_for); },
      "fsdp: a communicator has a scratch_bytes_for that is no static std::int64_t scratch_bytes_for(int ranks), the "
      "bytes that it would hold, which plans count");
  static_assert(
      !requires { &C::shared_memory; } ||
          requires(C c, std::int64_t bytes) {
            { c.shared_memory(bytes) } -> std::same_as<std::shared_ptr<std::byte>>;
          },
      "fsdp: a communicator has a shared_memory that is no std::shared_ptr<std::byte> shared_memory(std::int64_t "
      "bytes)");
  static_assert(
      !has_can_be_captured<C>() || requires { typename std::bool_constant<C::can_be_captured>; },
      "fsdp: a communicator has a can_be_captured that is no static constexpr bool");
  static_assert(
      !has_device_for_each_rank<C>() || requires { typename std::bool_constant<C::device_for_each_rank>; },
      "fsdp: a communicator has a device_for_each_rank that is no static constexpr bool");
  static_assert(
      !has_end_run<C>() ||
          requires(C c, std::string_view axis) {
            requires noexcept(c.end_run(axis));
            { c.end_run(axis) } -> std::same_as<void>;
          },
      "fsdp: a communicator has an end_run that is no void end_run(std::string_view axis) noexcept, which is called "
      "when a run on it ends");
  if constexpr (requires { typename C::Request; })
    static_assert(
        !requires { &C::Request::progress; } || requires(typename C::Request request) { request.progress(); },
        "fsdp: a communicator's Request has a progress that is no void progress()");
  return true;
}

}  // namespace detail

/// Explains in static_assert messages which requirements of a communication backend a type does not meet. Call it where
/// the type is first used.
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
      detail::Gathers<C, float> && detail::Gathers<C, bf16>,
      "fsdp: a communicator lacks template <class T> Request all_gather(std::span<const Segment<T>>), which starts it "
      "and returns the Request that waits for it; see tessera/comm/communicator.hpp");
  static_assert(
      detail::Scatters<C>,
      "fsdp: a communicator lacks template <class Wire> Request reduce_scatter(std::span<const Segment<float>>, "
      "Write), which sums in float, in rank order, and returns the Request that waits for it");
  static_assert(
      detail::ScattersWith<C, Contributions>,
      "fsdp: a communicator's reduce_scatter takes Contributions as its third argument and returns no Request; return "
      "the Request that waits for the sum");
  static_assert(
      detail::ScattersWith<C, Contributions, SumOrder>,
      "fsdp: a communicator's reduce_scatter takes SumOrder as its fourth argument and returns no Request; return the "
      "Request that waits for the sum");
  static_assert(
      detail::Reduces<C>,
      "fsdp: a communicator lacks template <class Wire> Request all_reduce(std::span<const Segment<float>>), which is "
      "a reduce_scatter and an all_gather in place and returns the Request that waits for both");
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
      "fsdp: a communicator lacks Monitor& monitor(), where tessera/comm/collectives.hpp keeps options, times and "
      "records");
  static_assert(detail::check_optional_parts<C>());
  static_assert(
      !C::Device::asynchronous || QueuedCommunicator<C>,
      "fsdp: a communicator of an asynchronous device lacks after(event), wait_for(event) or Request::done(), "
      "which order its queue with the device's; see QueuedCommunicator in tessera/comm/communicator.hpp");
  return Communicator<C>;
}

/// Explains in a static_assert message which requirement for exchanging pieces a communicator does not meet.
template <class C>
consteval bool check_exchanges() {
  static_assert(
      detail::has_all_to_all<C>(),
      "fsdp: this communicator cannot exchange pieces, as sharded sequences require; give it template <class "
      "T> Request all_to_all(std::span<const Exchange<T>>), see tessera/comm/communicator.hpp, or take another "
      "communicator or WholeSequences");
  return ExchangingCommunicator<C>;
}

/// Whether a backend supports reductions with this wire type. Backends specialise it; tessera/comm/collectives.hpp
/// asserts it.
template <class C, class Wire>
inline constexpr bool supports_wire = std::is_same_v<Wire, float>;

/// Calls f(communicator) and returns the rank's exit status: f's result if it converts to int, else 0.
template <class F, class C>
int run_rank(F& f, C& communicator) {
  if constexpr (std::is_convertible_v<std::invoke_result_t<F&, C&>, int>)
    return static_cast<int>(f(communicator));
  else
    return f(communicator), 0;
}

}  // namespace fsdp::comm

// Compiled into the library.
FSDP_LIST(fsdp::comm::Segment<float>)
FSDP_LIST(fsdp::comm::Segment<fsdp::bf16>)
FSDP_LIST(fsdp::comm::Exchange<float>)
FSDP_LIST(fsdp::comm::Exchange<fsdp::bf16>)
