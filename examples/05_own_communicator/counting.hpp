// SPDX-License-Identifier: Apache-2.0
/// @file
/// A communicator that wraps another one: it forwards every call, counts the bytes that this rank receives, and prints
/// them when the run ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include <tessera/comm/communicator.hpp>
#include <tessera/comm/launch/launch.hpp>

namespace mine {

/// Number of gathers, reductions and exchanges, and the bytes that one rank received from its peers through them.
struct Traffic {
  std::int64_t gathers = 0, gathered_bytes = 0;
  std::int64_t reductions = 0, reduced_bytes = 0;
  std::int64_t exchanges = 0, exchanged_bytes = 0;  ///< exchanges of sharded sequences
};

template <class Inner>
class Counting {
 public:
  using Device = typename Inner::Device;
  using Request = typename Inner::Request;
  template <class T>
  using Segments = std::span<const fsdp::comm::Segment<T>>;

  template <class F>
  static int run(int ranks, const fsdp::comm::Options& options, F f) {
    return Inner::run(ranks, options, [&f](Inner& inner) {
      Counting communicator(std::move(inner));
      return fsdp::comm::run_rank(f, communicator);
    });
  }

  /// Called when a run on this communicator ends, even if it ends with an error, so it must not throw.
  void end_run(std::string_view axis) noexcept {
    if (rank() != 0) return;
    std::printf("%.*s of %d: %lld gathers brought %lld bytes, %lld reductions %lld\n", static_cast<int>(axis.size()),
                axis.data(), size(), static_cast<long long>(traffic_.gathers),
                static_cast<long long>(traffic_.gathered_bytes), static_cast<long long>(traffic_.reductions),
                static_cast<long long>(traffic_.reduced_bytes));
    if (traffic_.exchanges > 0)
      std::printf("%lld exchanges brought %lld bytes\n", static_cast<long long>(traffic_.exchanges),
                  static_cast<long long>(traffic_.exchanged_bytes));
  }

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  fsdp::comm::Monitor& monitor() { return inner_.monitor(); }
  const fsdp::comm::Monitor& monitor() const { return inner_.monitor(); }
  Counting split(int color) { return Counting(inner_.split(color)); }

  template <class T>
  Request all_gather(Segments<T> segments) {
    ++traffic_.gathers;
    for (const auto& segment : segments) traffic_.gathered_bytes += of_peers(segment.counts) * std::int64_t{sizeof(T)};
    return inner_.all_gather(segments);
  }
  template <class T>
  Request all_to_all(std::span<const fsdp::comm::Exchange<T>> exchanges) {
    ++traffic_.exchanges;
    for (const auto& exchange : exchanges)
      traffic_.exchanged_bytes += of_peers(exchange.receive_counts) * std::int64_t{sizeof(T)};
    return inner_.all_to_all(exchanges);
  }
  template <class Wire>
  Request reduce_scatter(Segments<float> segments, fsdp::Write write) {
    ++traffic_.reductions;
    for (const auto& segment : segments)  // every peer's contribution to this rank's piece
      traffic_.reduced_bytes += segment.counts[rank()] * (size() - 1) * std::int64_t{sizeof(Wire)};
    return inner_.template reduce_scatter<Wire>(segments, write);
  }
  template <class Wire>
  Request all_reduce(Segments<float> segments) {
    ++traffic_.reductions;
    for (const auto& segment : segments)
      traffic_.reduced_bytes +=
          (segment.counts[rank()] * (size() - 1) + of_peers(segment.counts)) * std::int64_t{sizeof(Wire)};
    return inner_.template all_reduce<Wire>(segments);
  }
  template <class T>
  void reduce(std::span<T> values, fsdp::comm::Reduction reduction) {
    inner_.reduce(values, reduction);
  }
  void broadcast(std::span<std::byte> bytes, int root) { inner_.broadcast(bytes, root); }
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) { inner_.gather_bytes(mine, all); }
  void barrier() { inner_.barrier(); }

 private:
  explicit Counting(Inner inner) : inner_(std::move(inner)) {}

  std::int64_t of_peers(std::span<const std::int64_t> counts) const {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) - counts[rank()];
  }

  Inner inner_;
  Traffic traffic_;
};

}  // namespace mine

/// Reductions can use bf16 on the wire if the inner communicator can.
template <class Inner>
inline constexpr bool fsdp::comm::supports_wire<mine::Counting<Inner>, fsdp::bf16> =
    fsdp::comm::supports_wire<Inner, fsdp::bf16>;
