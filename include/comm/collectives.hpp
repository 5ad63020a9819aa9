// SPDX-License-Identifier: Apache-2.0
/// @file
/// The collectives that all other code calls. They check arguments, compare ranks, record and time each collective, and
/// identify it in errors.
///
/// The communicator's `monitor().options` determines which of these are enabled. No other code calls a backend
/// directly. `segments` is a std::vector, std::array or std::span of Segment<T>; `exchanges` is such a range of
/// Exchange<T>.
#pragma once

#include <array>
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

/// The description of a collective that is about to start, as `enter` records, compares and counts it. `enter` adds
/// the sizes of segments or exchanges.
struct Entered {
  Op op = Op::barrier;
  DType dtype = DType::u8;
  std::int64_t elements = 0;  ///< number of elements of all `full`, or of all `receive`
  Label label = {};
  std::int64_t segments = 0;
  std::uint8_t variant = 0;
  Write write = Write::overwrite;
  std::int64_t own_elements = 0;   ///< number of elements of all `local`; not counted for exchanges
  std::int64_t own_copied = 0;     ///< number of elements of all `local` that are not in place inside `full`
  std::uint64_t hash = hash_seed;  ///< hash of the counts of all segments
};

/// This rank's position in a communicator, with its monitor.
struct Position {
  Monitor& monitor;
  int rank = 0;
  int size = 1;
};
template <class C>
Position position_of(C& c) {
  return {.monitor = c.monitor(), .rank = c.rank(), .size = c.size()};
}

/// Assigns a sequence number to a collective that is about to start, records it, and counts the bytes that it copies.
/// Throws if the counts, memory or aliasing of a segment or exchange are invalid for the collective. With
/// Options::checks, compares it with the other ranks' collectives, which it gathers with `gather`.
Record enter(const Position& position, Entered entered, const PartList& parts,
             FunctionRef<void(std::span<const std::byte>, std::span<std::byte>)> gather);

/// Gathers bytes without checks, for `enter`.
template <class C>
struct GatherBytes {
  C& communicator;
  void operator()(std::span<const std::byte> mine, std::span<std::byte> all) const {
    communicator.gather_bytes(mine, all);
  }
};

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

/// Enters a collective and calls `call`. Returns the Pending of the Request that it returns, if it returns one.
template <Communicator C, class Call>
auto run(C& c, const Entered& entered, const PartList& parts, const Call& call) {
  const Record record = enter(position_of(c), entered, parts, GatherBytes<C>{c});
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
  const auto list = detail::view_of(segments);
  const PartList parts = parts_of(list);
  return detail::run(c, {.op = Op::all_gather, .dtype = parts.dtype, .label = label}, parts,
                     [&] { return c.all_gather(list); });
}

/// Sends every piece of every rank's `send` to its rank, into its place in that rank's `receive`.
template <Communicator C, class Exchanges>
[[nodiscard]] Pending<C> all_to_all(C& c, const Exchanges& exchanges, Label label = {}) {
  static_assert(check_exchanges<C>());
  const auto list = detail::view_of<Exchange>(exchanges);
  const PartList parts = parts_of(list);
  return detail::run(c, {.op = Op::all_to_all, .dtype = parts.dtype, .label = label}, parts,
                     [&] { return c.all_to_all(list); });
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
  const detail::Entered entered{.op = Op::reduce_scatter,
                                .dtype = dtype_of<Wire>(),
                                .label = label,
                                .variant = detail::variant_of(write, order),
                                .write = write};
  return detail::run(c, entered, parts_of(list), [&] {
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
  return detail::run(c, {.op = Op::all_reduce, .dtype = dtype_of<Wire>(), .label = label}, parts_of(list),
                     [&] { return c.template all_reduce<Wire>(list); });
}

/// Reduces a few values (double or std::int64_t) over all ranks, in rank order, into every rank's `values`. Blocks.
template <Communicator C, class T>
void reduce(C& c, std::span<T> values, Reduction reduction, Label label = {}) {
  const detail::Entered entered{.op = Op::reduce,
                                .dtype = dtype_of<T>(),
                                .elements = std::ssize(values),
                                .label = label,
                                .segments = 1,
                                .variant = static_cast<std::uint8_t>(reduction),
                                .own_elements = std::ssize(values)};
  detail::run(c, entered, {}, [&] { c.reduce(values, reduction); });
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
  const detail::Entered entered{.op = Op::broadcast,
                                .elements = std::ssize(bytes),
                                .label = label,
                                .segments = 1,
                                .variant = static_cast<std::uint8_t>(root),
                                .own_elements = c.rank() == root ? std::ssize(bytes) : 0};
  detail::run(c, entered, {}, [&] { c.broadcast(bytes, root); });
}

/// Gathers every rank's `mine` into `all`, in rank order. All ranks pass the same size. Blocks.
template <Communicator C>
void gather_bytes(C& c, std::span<const std::byte> mine, std::span<std::byte> all, Label label = {}) {
  require(all.size() == mine.size() * static_cast<std::size_t>(c.size()), "gather_bytes: ", all.size(),
          " bytes were given for ", c.size(), " ranks of ", mine.size(), " bytes each");
  detail::run(c, {.op = Op::gather_bytes, .elements = std::ssize(all), .label = label, .segments = 1}, {},
              [&] { c.gather_bytes(mine, all); });
}

/// Returns when all ranks have called it.
template <Communicator C>
void barrier(C& c, Label label = {}) {
  detail::run(c, {.op = Op::barrier, .label = label}, {}, [&] { c.barrier(); });
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

namespace detail {

/// Returns the number of ranks of `whole` that have this rank's color, and this rank's number among them.
Position position_in_part(const Position& whole, int color, FunctionRef<int(int)> color_of);
/// Throws InputError unless a communicator's own split made the part that `expected` describes.
void require_part(const Position& whole, const Position& expected, const Position& made);

}  // namespace detail

/// Splits `c`: ranks r with equal color_of(r) form a new communicator, ordered by their rank in `c`, with its options.
template <Communicator C>
C split(C& c, FunctionRef<int(int)> color_of) {
  const int color = color_of(c.rank());
  const detail::Position whole = detail::position_of(c), expected = detail::position_in_part(whole, color, color_of);
  if constexpr (requires { c.split_into({}); }) {
    return c.split_into({.ranks = expected.size, .rank = expected.rank});
  } else {
    C part = detail::watch(c.monitor(), Record{.sequence = c.monitor().sequence, .label = {.what = "split"}},
                           [&] { return c.split(color); });
    detail::require_part(whole, expected, detail::position_of(part));
    return part;
  }
}

/// Instantiates most collectives of a communicator that stacks call: `extern template` in its header, `template` in one
/// source, so that the library contains them.
#define FSDP_COLLECTIVES(how, ...)                                                                               \
  how class Pending<__VA_ARGS__>;                                                                                \
  how Pending<__VA_ARGS__> all_gather(__VA_ARGS__&, const std::vector<Segment<float>>&, Label);                  \
  how Pending<__VA_ARGS__> all_gather(__VA_ARGS__&, const std::vector<Segment<bf16>>&, Label);                   \
  how Pending<__VA_ARGS__> all_gather(__VA_ARGS__&, const std::array<Segment<double>, 1>&, Label);               \
  how Pending<__VA_ARGS__> all_gather(__VA_ARGS__&, const std::array<Segment<std::int64_t>, 1>&, Label);         \
  how Pending<__VA_ARGS__> reduce_scatter<float>(__VA_ARGS__&, const std::vector<Segment<float>>&, Write, Label, \
                                                 Contributions, SumOrder);                                       \
  how Pending<__VA_ARGS__> reduce_scatter<bf16>(__VA_ARGS__&, const std::vector<Segment<float>>&, Write, Label,  \
                                                Contributions, SumOrder);                                        \
  how Pending<__VA_ARGS__> all_reduce<float>(__VA_ARGS__&, const std::vector<Segment<float>>&, Label);           \
  how Pending<__VA_ARGS__> all_reduce<bf16>(__VA_ARGS__&, const std::vector<Segment<float>>&, Label);            \
  how void reduce(__VA_ARGS__&, std::span<std::int64_t>, Reduction, Label);                                      \
  how void reduce(__VA_ARGS__&, std::span<double>, Reduction, Label);                                            \
  how void broadcast(__VA_ARGS__&, std::span<std::byte>, int, Label);                                            \
  how void gather_bytes(__VA_ARGS__&, std::span<const std::byte>, std::span<std::byte>, Label);                  \
  how void barrier(__VA_ARGS__&, Label);                                                                         \
  how __VA_ARGS__ split(__VA_ARGS__&, FunctionRef<int(int)>);
/// The same for a backend with its core.
#define FSDP_BACKEND(how, Core, Device, ...) \
  how class TransferRequest<Core>;           \
  how class Backend<Core, Device>;           \
  how class __VA_ARGS__;                     \
  FSDP_COLLECTIVES(how, __VA_ARGS__)

}  // namespace fsdp::comm
