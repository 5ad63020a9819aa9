// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a communication backend is: the concept, segments, requests and errors.
///
/// A backend moves bytes and nothing else. Recording, checks and labels live in comm/collectives.hpp, the one layer of free
/// functions that everything above calls; they keep their state in the Monitor that each backend carries.
/// To add a backend: a header beside this one that passes check_communicator, its row in tests/comm/.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

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

/// Reduction of small values, in rank order.
enum class Reduction : std::uint8_t { sum, max, min };

/// The rest of a collective that was started. Destroying one that was not waited for waits for it.
///
/// `test` makes progress and says whether all is done; `wait` returns when this rank's results are in place and no peer reads
/// or writes this rank's memory any more, or throws CollectiveError at the deadline or when another rank has failed.
template <class R>
concept AsyncRequest = std::movable<R> && !std::copyable<R> && std::default_initializable<R> && requires(R request) {
  { request.test() } -> std::same_as<bool>;
  request.wait();
};

/// A communication backend. One object belongs to one rank; all calls are collective and come in the same order on all ranks.
///  - all_gather: every `local` goes to its place in every rank's `full`.
///  - reduce_scatter<Wire>: local = (or +=) the sum over ranks of their `full` at this rank's place. Each contribution is rounded
///    to Wire, sums are made in T in rank order: the same bits whatever the backend.
///  - all_reduce<Wire>: reduce_scatter into each rank's place of its own `full`, then all_gather: `local` must lie there.
///  - reduce: a few values (losses, counts, norms), blocking, in rank order.
///  - split: ranks with equal `color` form a new communicator, ordered by their rank here.
template <class C>
concept Communicator = std::movable<C> && AsyncRequest<typename C::Request> &&
    requires(C c, const C constant, std::span<const Segment<float>> segments, std::span<double> values,
             std::span<std::int64_t> counts, std::span<std::byte> bytes, Write write, Reduction reduction) {
      typename C::Device;
      { C::name } -> std::convertible_to<std::string_view>;
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

/// Whether a backend can reduce with this wire type. Backends specialise it; comm/collectives.hpp asserts it.
template <class C, class Wire>
inline constexpr bool supports_wire = std::is_same_v<Wire, float>;

}  // namespace fsdp::comm
