// SPDX-License-Identifier: Apache-2.0
/// @file
/// The collectives that all other code calls. They check arguments, compare ranks, record and time each collective, and
/// identify it in errors.
///
/// The communicator's `monitor().options` determines which of these are enabled. No other code calls a backend
/// directly. `segments` is a std::vector, std::array or std::span of Segment<T>; `exchanges` is such a range of
/// Exchange<T>.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/communicator.hpp>
#include <tessera/comm/poll.hpp>
#include <tessera/comm/transfer.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/core/hash.hpp>

namespace fsdp::comm {

namespace detail {

/// Times one call into a backend: adds the time not spent moving bytes to Totals::waiting_seconds. Adds the
/// collective's description to errors.
class Watched {
 public:
  Watched(Monitor& monitor, const Record& record);
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched();

  /// Returns the error with a prefix: "rank 0, all_gather of unit 3 (...), after 20.000 s: ".
  CollectiveError explain(const CollectiveError& error) const;

 private:
  Monitor& monitor_;
  double copied_before_;
  Clock::time_point begin_;
};

/// Calls `call` and adds the collective's description to its CollectiveError.
template <class Call>
decltype(auto) watch(Monitor& monitor, const Record& record, Call call) {
  const Watched watched(monitor, record);
  try {
    return call();
  } catch (const CollectiveError& error) {
    throw watched.explain(error);
  }
}

template <template <class> class Part, class T>
std::type_identity<T> element_of(const Part<T>&);

/// The element type T of a contiguous range of Segment<T> or Exchange<T>.
template <class Segments>
using ElementOf = typename decltype(element_of(*std::declval<const Segments&>().data()))::type;

template <template <class> class Part = Segment, class Segments>
std::span<const Part<ElementOf<Segments>>> view_of(const Segments& segments) {
  return {segments.data(), segments.size()};
}

/// Encodes the Write and SumOrder of a reduce_scatter in one byte.
constexpr std::uint8_t variant_of(Write write, SumOrder order) {
  return static_cast<std::uint8_t>(static_cast<int>(write) | static_cast<int>(order) << 1);
}

/// The description of a collective that is about to start, as `enter` records and compares it.
struct Entered {
  Op op = Op::barrier;
  DType dtype = DType::u8;
  std::int64_t elements = 0;
  Label label = {};
  std::int64_t segments = 0;
  std::uint64_t hash = 0;
  std::uint8_t variant = 0;
  /// In an all_to_all with Options::checks: for each exchange, the number of elements that this rank sends to each
  /// rank, then the number that it receives from each.
  std::span<const std::int64_t> exchanged = {};
};

/// An Entered that is computed from segments or exchanges, with their totals. For segments, `elements` and `hash` cover
/// all `full`. For exchanges, `elements` covers all `receive`, and `hash` is not set.
struct Sizes : Entered {
  std::int64_t own_elements = 0;  ///< number of elements of all `local`
  std::int64_t own_copied = 0;    ///< number of elements of all `local` that are not in place inside `full`
  int ranks = 1;
};

/// Checks segment or exchange number `index` and adds it to `sizes`. Throws if its counts, memory or aliasing are
/// invalid for the collective.
void add_segment(Sizes& sizes, std::size_t index, const ByteSegment& segment, std::int64_t element_bytes, int rank,
                 Write write);

/// Throws if the memory that exchange `i` of an all_to_all receives into overlaps the memory that exchange `j` of the
/// same call sends, or that another exchange receives into.
void require_apart(std::size_t i, const ByteSegment& receiving, std::size_t j, const ByteSegment& other,
                   std::int64_t element_bytes);

template <template <class> class Part, class T>
Sizes sizes_of(std::span<const Part<T>> segments, int rank, int size, Entered entered, Write write = Write::overwrite) {
  entered.segments = std::ssize(segments);
  entered.hash = hash_seed;
  Sizes sizes{entered, 0, 0, size};
  for (std::size_t index = 0; index < segments.size(); ++index)
    add_segment(sizes, index, bytes_of(segments[index]), sizeof(T), rank, write);
  return sizes;
}

/// Assigns a sequence number to and records a collective that is about to start. With Options::checks, compares it with
/// the other ranks' collectives, which it gathers with `gather`.
Record enter(Monitor& monitor, int rank, int size, const Entered& entered,
             FunctionRef<void(std::span<const std::byte>, std::span<std::byte>)> gather);

}  // namespace detail

/// A collective that was started. The destructor waits for it unless the caller has. It must not outlive its
/// communicator.
template <Communicator C>
class Pending {
 public:
  Pending() = default;
  Pending(typename C::Request request, Monitor& monitor, const Record& record)
      : request_(std::move(request)), monitor_(&monitor), record_(record) {}
  Pending(Pending&& other) noexcept = default;
  Pending& operator=(Pending&& other) noexcept = default;

  /// Makes progress and returns whether the collective is complete.
  bool test() {
    return monitor_ == nullptr || detail::watch(*monitor_, record_, [&] { return request_.test(); });
  }
  /// Does the host's share of the work, without waiting. Unlike `test` it does not query the device.
  void progress() {
    if constexpr (requires { C::Request::complete; }) return;
    if constexpr (requires { request_.progress(); }) {
      if (monitor_ != nullptr) detail::watch(*monitor_, record_, [&] { request_.progress(); });
    } else {
      test();
    }
  }
  /// Returns when this rank's results are in place and no peer uses this rank's memory any more.
  void wait() {
    if (monitor_ != nullptr) detail::watch(*monitor_, record_, [&] { request_.wait(); });
  }
  /// Returns the event after which `wait` would return, for queues to wait on; the same event in every call. On a
  /// synchronous device, it blocks until the collective is complete.
  typename C::Device::Event done() {
    if constexpr (C::Device::asynchronous) {
      if (monitor_ == nullptr) return {};
      return detail::watch(*monitor_, record_, [&] { return request_.done(); });
    } else {
      wait();
      return {};
    }
  }
  /// Makes all work enqueued on `queue` after this call start after this collective.
  void wait(typename C::Device::Queue& queue) { queue.wait(done()); }

 private:
  typename C::Request request_;
  Monitor* monitor_ = nullptr;
  Record record_;
};

namespace detail {

/// Enters a collective, counts the `copied()` bytes that it copies, and calls `call`. Returns the Pending of the
/// Request that it returns, if it returns one. `copied` is called after `enter`, which throws if the bytes overflow.
template <Communicator C, class Copied, class Call>
auto run(C& c, const Entered& entered, const Copied& copied, const Call& call) {
  const Record record =
      enter(c.monitor(), c.rank(), c.size(), entered,
            [&](std::span<const std::byte> mine, std::span<std::byte> all) { c.gather_bytes(mine, all); });
  c.monitor().totals.copied_bytes += copied();
  if constexpr (std::is_void_v<std::invoke_result_t<const Call&>>)
    watch(c.monitor(), record, call);
  else
    return Pending<C>(watch(c.monitor(), record, call), c.monitor(), record);
}

template <class C, class Wire>
consteval bool check_wire() {
  static_assert(supports_wire<C, Wire>,
                "fsdp: this communicator cannot reduce with this wire type, because it has no sum of it; take float as "
                "the precision policy's Reduce, or another communicator (supports_wire in "
                "tessera/comm/communicator.hpp lists them)");
  return true;
}

}  // namespace detail

/// Gathers every rank's `local` into its place in every rank's `full`.
template <Communicator C, class Segments>
[[nodiscard]] Pending<C> all_gather(C& c, const Segments& segments, Label label = {}) {
  using T = detail::ElementOf<Segments>;
  const auto list = detail::view_of(segments);
  const detail::Sizes sizes =
      detail::sizes_of(list, c.rank(), c.size(), {.op = Op::all_gather, .dtype = dtype_of<T>(), .label = label});
  const auto copied = [&] { return (sizes.elements - sizes.own_elements + sizes.own_copied) * size_of(sizes.dtype); };
  return detail::run(c, sizes, copied, [&] { return c.all_gather(list); });
}

/// Sends every piece of every rank's `send` to its rank, into its place in that rank's `receive`.
template <Communicator C, class Exchanges>
[[nodiscard]] Pending<C> all_to_all(C& c, const Exchanges& exchanges, Label label = {}) {
  static_assert(check_exchanges<C>());
  using T = detail::ElementOf<Exchanges>;
  const auto list = detail::view_of<Exchange>(exchanges);
  detail::Sizes sizes =
      detail::sizes_of(list, c.rank(), c.size(), {.op = Op::all_to_all, .dtype = dtype_of<T>(), .label = label});
  for (std::size_t i = 0; i < list.size(); ++i)
    for (std::size_t j = 0; j < list.size(); ++j)
      detail::require_apart(i, bytes_of(list[i]), j, bytes_of(list[j]), sizeof(T));
  std::vector<std::int64_t> counts;
  if (c.monitor().options.checks)
    for (const Exchange<T>& exchange : list) {
      counts.insert(counts.end(), exchange.send_counts.begin(), exchange.send_counts.end());
      counts.insert(counts.end(), exchange.receive_counts.begin(), exchange.receive_counts.end());
    }
  sizes.exchanged = counts;
  const auto copied = [&] { return sizes.elements * size_of(sizes.dtype); };
  return detail::run(c, sizes, copied, [&] { return c.all_to_all(list); });
}

/// Sums this rank's piece of all ranks' `full`. `write` specifies whether `local` is overwritten or each contribution
/// in turn is added to it. Contributions are rounded to Wire and added in float in rank order; with SumOrder::any, Nccl
/// adds floats in NCCL's order.
template <class Wire, Communicator C, class Segments>
[[nodiscard]] Pending<C> reduce_scatter(C& c, const Segments& segments, Write write, Label label = {},
                                        Contributions contributions = Contributions::kept,
                                        SumOrder order = SumOrder::any) {
  static_assert(detail::check_wire<C, Wire>());
  const std::span<const Segment<float>> list = detail::view_of(segments);
  const detail::Entered entered{
      .op = Op::reduce_scatter, .dtype = dtype_of<Wire>(), .label = label, .variant = detail::variant_of(write, order)};
  const detail::Sizes sizes = detail::sizes_of(list, c.rank(), c.size(), entered, write);
  const auto copied = [&] { return sizes.own_elements * (c.size() - 1) * size_of(sizes.dtype); };
  return detail::run(c, sizes, copied, [&] {
    if constexpr (requires { c.template reduce_scatter<Wire>(list, write, contributions, order); })
      return c.template reduce_scatter<Wire>(list, write, contributions, order);
    else if constexpr (requires { c.template reduce_scatter<Wire>(list, write, contributions); })
      return c.template reduce_scatter<Wire>(list, write, contributions);
    else
      return c.template reduce_scatter<Wire>(list, write);
  });
}

/// Sums all ranks' `full` into every rank's `full`: an in-place reduce_scatter, then an all_gather. `local` must be in
/// place inside `full`.
template <class Wire, Communicator C, class Segments>
[[nodiscard]] Pending<C> all_reduce(C& c, const Segments& segments, Label label = {}) {
  static_assert(detail::check_wire<C, Wire>());
  const std::span<const Segment<float>> list = detail::view_of(segments);
  const detail::Sizes sizes =
      detail::sizes_of(list, c.rank(), c.size(), {.op = Op::all_reduce, .dtype = dtype_of<Wire>(), .label = label});
  const auto copied = [&] {
    return sizes.own_elements * (c.size() - 1) * size_of(sizes.dtype) +
           (sizes.elements - sizes.own_elements) * size_of(DType::f32);
  };
  return detail::run(c, sizes, copied, [&] { return c.template all_reduce<Wire>(list); });
}

/// Reduces a few values (double or std::int64_t) over all ranks, in rank order, into every rank's `values`. Blocks.
template <Communicator C, class T>
void reduce(C& c, std::span<T> values, Reduction reduction, Label label = {}) {
  const auto count = static_cast<std::int64_t>(values.size());
  const detail::Entered entered{.op = Op::reduce,
                                .dtype = dtype_of<T>(),
                                .elements = count,
                                .label = label,
                                .segments = 1,
                                .variant = static_cast<std::uint8_t>(reduction)};
  const auto copied = [&] { return count * (c.size() - 1) * size_of(entered.dtype); };
  detail::run(c, entered, copied, [&] { c.reduce(values, reduction); });
}

/// Returns the sum of one value over all ranks, added in rank order.
template <Communicator C>
double sum_over_ranks(C& c, double value, Label label = {}) {
  reduce(c, std::span(&value, 1), Reduction::sum, label);
  return value;
}

/// Copies root's bytes to every rank. Blocks.
template <Communicator C>
void broadcast(C& c, std::span<std::byte> bytes, int root, Label label = {}) {
  require(root >= 0 && root < c.size(), "broadcast: rank ", root, " of ", c.size(), " is not there");
  const auto count = static_cast<std::int64_t>(bytes.size());
  const auto variant = static_cast<std::uint8_t>(root);
  detail::run(
      c, {.op = Op::broadcast, .elements = count, .label = label, .segments = 1, .variant = variant},
      [&] { return c.rank() == root ? 0 : count; }, [&] { c.broadcast(bytes, root); });
}

/// Gathers every rank's `mine` into `all`, in rank order. All ranks pass the same size. Blocks.
template <Communicator C>
void gather_bytes(C& c, std::span<const std::byte> mine, std::span<std::byte> all, Label label = {}) {
  require(all.size() == mine.size() * static_cast<std::size_t>(c.size()), "gather_bytes: ", all.size(),
          " bytes were given for ", c.size(), " ranks of ", mine.size(), " bytes each");
  const auto count = static_cast<std::int64_t>(all.size());
  detail::run(
      c, {.op = Op::gather_bytes, .elements = count, .label = label, .segments = 1}, [&] { return count; },
      [&] { c.gather_bytes(mine, all); });
}

/// Returns when all ranks have called it.
template <Communicator C>
void barrier(C& c, Label label = {}) {
  detail::run(
      c, {.op = Op::barrier, .label = label}, [] { return 0; }, [&] { c.barrier(); });
}

/// Makes the next collective of `c` start after `event`. Several calls accumulate: it then starts after all of the
/// events. Does nothing on a synchronous device.
template <Communicator C>
void after(C& c, const typename C::Device::Event& event) {
  if constexpr (C::Device::asynchronous) c.after(event);
}

/// Returns whether a device graph can capture collectives of `c` (device::Captures). All ranks must capture the same
/// collectives and launch the graphs together. Always true for a single rank; otherwise the backend must support it
/// (only Nccl does; with the others, the host takes part in each collective) and Options::checks must be off.
template <Communicator C>
bool can_be_captured(C& c) {
  if (c.size() == 1) return true;
  if constexpr (requires { C::can_be_captured; })
    return C::can_be_captured && !c.monitor().options.checks;
  else
    return false;
}

/// Blocks the host until all work enqueued on `queue` is done. Throws CollectiveError at the device deadline
/// (Options::device_deadline) or when another rank has failed. Does nothing on a synchronous device.
template <Communicator C>
void synchronize(C& c, typename C::Device::Queue& queue) {
  if constexpr (C::Device::asynchronous)
    detail::watch(c.monitor(), Record{.sequence = c.monitor().sequence, .label = {.what = "synchronize"}}, [&] {
      c.wait_for(queue.record());
      queue.synchronize();
    });
}

/// Blocks the host until `event` has happened; `label` identifies the awaited work in errors. Throws as synchronize
/// does.
template <Communicator C>
void wait_for(C& c, const typename C::Device::Event& event, Label label) {
  if constexpr (C::Device::asynchronous)
    detail::watch(c.monitor(), Record{.sequence = c.monitor().sequence, .label = label}, [&] { c.wait_for(event); });
}

/// Allocates zeroed memory that collectives transfer without a staging copy: peers or NCCL read it in place. Use it for
/// the buffers that collectives read (`local` of a gather, `full` of a reduction). Returns nullptr if the communicator
/// has or needs no such memory. The memory may outlive the communicator.
template <Communicator C>
std::shared_ptr<std::byte> shared_memory(C& c, std::int64_t bytes) {
  if constexpr (requires { c.shared_memory(bytes); })
    return bytes == 0 ? nullptr : c.shared_memory(bytes);
  else
    return nullptr;
}

/// Splits `c`: ranks r with equal color_of(r) form a new communicator, ordered by their rank in `c`, with its options.
template <Communicator C, class ColorOf>
C split(C& c, ColorOf color_of) {
  const int color = color_of(c.rank());
  int ranks = 0;
  int rank = 0;
  for (int peer = 0; peer < c.size(); ++peer) {
    if (color_of(peer) != color) continue;
    if (peer < c.rank()) ++rank;
    ++ranks;
  }
  if constexpr (requires { c.split_into({}); }) {
    return c.split_into({.ranks = ranks, .rank = rank});
  } else {
    C part = detail::watch(c.monitor(), Record{.sequence = c.monitor().sequence, .label = {.what = "split"}},
                           [&] { return c.split(color); });
    require<InputError>(part.rank() == rank && part.size() == ranks, "split: a communicator made rank ", c.rank(),
                        " of ", c.size(), " rank ", part.rank(), " of ", part.size(), ", and it is rank ", rank, " of ",
                        ranks, "; ranks of equal color form the new communicator, in their order");
    return part;
  }
}

}  // namespace fsdp::comm
