// SPDX-License-Identifier: Apache-2.0
/// @file
/// Groups of NCCL calls and their treatment by the library: whether it would accept them, whether ranks agree, and the
/// effect of the calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <tessera/comm/nccl_table.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/operations.hpp>

namespace fsdp::testing {

using NcclCalls = std::vector<comm::nccl::Call>;
/// The calls of all ranks in one group.
using NcclCallsByRank = std::map<int, NcclCalls>;

inline const char* name_of(comm::nccl::Call::Kind kind) {
  constexpr const char* names[] = {"all_gather",     "all_reduce", "broadcast", "reduce",
                                   "reduce_scatter", "send",       "receive"};
  return names[static_cast<int>(kind)];
}

inline std::string words(const comm::nccl::Call& call) {
  return message(name_of(call.kind), " of ", call.count, " ", fsdp::name_of(call.dtype), ", peer ", call.peer);
}

inline bool point_to_point(const comm::nccl::Call& call) {
  return call.kind == comm::nccl::Call::Kind::send || call.kind == comm::nccl::Call::Kind::receive;
}

/// Whether send and receive buffers overlap in a way that NCCL's in-place rules do not allow.
inline bool has_forbidden_overlap(const comm::nccl::Call& call, int rank, int size) {
  using Kind = comm::nccl::Call::Kind;
  const bool rooted = call.kind == Kind::broadcast || call.kind == Kind::reduce;
  if (point_to_point(call) || (rooted && call.peer != rank)) return false;
  const std::int64_t bytes = call.count * size_of(call.dtype);
  const bool gathers = call.kind == Kind::all_gather;
  const bool scatters = call.kind == Kind::reduce_scatter;
  const bool apart =
      call.from + bytes * (scatters ? size : 1) <= call.to || call.to + bytes * (gathers ? size : 1) <= call.from;
  return !apart && call.to + (gathers ? rank * bytes : 0) != call.from + (scatters ? rank * bytes : 0);
}

/// Returns the reason for which NCCL would reject a call; empty if it would accept it.
inline std::string refusal_of(const comm::nccl::Call& call, int rank, int size) {
  using Kind = comm::nccl::Call::Kind;
  const bool reads = call.kind != Kind::receive;
  const bool writes = call.kind != Kind::send && (call.kind != Kind::reduce || call.peer == rank);
  const bool sums = call.kind == Kind::all_reduce || call.kind == Kind::reduce || call.kind == Kind::reduce_scatter;
  if (call.count <= 0) return "no elements";
  if ((reads && call.from == nullptr) || (writes && call.to == nullptr)) return "no memory";
  if (call.peer < 0 || call.peer >= size) return message("there are ", size, " ranks");
  if (point_to_point(call) && call.peer == rank) return "to itself";
  if (sums && call.dtype != DType::f32) return "sums are of floats";
  if (has_forbidden_overlap(call, rank, size)) return "overlaps itself, and not as NCCL's in-place rules allow";
  return "";
}

inline NcclCalls collectives_of(NcclCalls calls) {
  std::erase_if(calls, point_to_point);
  return calls;
}

/// Returns the calls of one kind with one peer, in order.
inline NcclCalls calls_with(NcclCalls calls, comm::nccl::Call::Kind kind, int peer) {
  std::erase_if(calls, [&](const auto& call) { return call.kind != kind || call.peer != peer; });
  return calls;
}

/// Returns a description of two ranks whose calls do not match, and of these calls; empty if all match.
inline std::string disagreement_of(const NcclCallsByRank& group) {
  using Kind = comm::nccl::Call::Kind;
  const auto compare = [](const NcclCalls& a, int rank_a, const NcclCalls& b, int rank_b,
                          bool peers_too) -> std::string {
    for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      const auto text = [i](const NcclCalls& calls) { return i < calls.size() ? words(calls[i]) : "nothing"; };
      const bool same = i < a.size() && i < b.size() && a[i].count == b[i].count && a[i].dtype == b[i].dtype &&
                        (!peers_too || (a[i].kind == b[i].kind && a[i].peer == b[i].peer));
      if (!same) return message("call ", i, ": rank ", rank_a, " has ", text(a), "; rank ", rank_b, " has ", text(b));
    }
    return "";
  };
  const NcclCalls first = collectives_of(group.at(0));
  for (const auto& [a, calls] : group) {
    if (std::string text = compare(first, 0, collectives_of(calls), a, true); !text.empty()) return text;
    for (const auto& [b, others] : group) {
      std::string text = compare(calls_with(calls, Kind::send, b), a, calls_with(others, Kind::receive, a), b, false);
      if (!text.empty()) return text;
    }
  }
  return "";
}

/// Enqueues one rank's part of a group. Sums whose destination is still read by peers go to temporary memory first;
/// call `finish` after the parts of all ranks. Contributions are added in an order drawn from `order`; 0: rank order.
template <class Device>
class NcclPart {
 public:
  using Queue = typename Device::Queue;

  NcclPart(Queue& queue, int rank, const NcclCallsByRank& group, std::uint64_t order) : queue_(queue), order_(order) {
    NcclCallsByRank collectives;
    for (const auto& [peer, calls] : group) collectives[peer] = collectives_of(calls);
    std::size_t collective = 0;
    std::map<int, std::size_t> received;
    for (const comm::nccl::Call& call : group.at(rank)) {
      if (call.kind == comm::nccl::Call::Kind::receive) {
        const NcclCalls sent = calls_with(group.at(call.peer), comm::nccl::Call::Kind::send, rank);
        move(sent[received[call.peer]++].from, call.to, call.count * size_of(call.dtype));
      } else if (call.kind != comm::nccl::Call::Kind::send) {
        std::vector<const std::byte*> parts;
        for (const auto& [peer, calls] : collectives) parts.push_back(calls[collective].from);
        ++collective;
        perform(call, rank, std::move(parts));
      }
    }
  }

  void finish() {
    for (const auto& [sum, call] : sums_) move(sum.get(), call.to, call.count * size_of(call.dtype));
  }

 private:
  void perform(const comm::nccl::Call& call, int rank, std::vector<const std::byte*> parts) {
    using Kind = comm::nccl::Call::Kind;
    const std::int64_t bytes = call.count * size_of(call.dtype);
    switch (call.kind) {
      case Kind::all_gather:
        for (std::size_t peer = 0; peer < parts.size(); ++peer)
          move(parts[peer], call.to + static_cast<std::int64_t>(peer) * bytes, bytes);
        break;
      case Kind::broadcast: move(parts[static_cast<std::size_t>(call.peer)], call.to, bytes); break;
      case Kind::reduce_scatter:
        for (const std::byte*& part : parts) part += rank * bytes;
        sum(parts, call.count, call.to);
        break;
      case Kind::reduce:
        if (call.peer == rank) sum(parts, call.count, call.to);
        break;
      case Kind::all_reduce: {
        std::shared_ptr<std::byte> temporary(Device::allocate(bytes),
                                             [bytes](std::byte* data) { Device::deallocate(data, bytes); });
        sum(parts, call.count, temporary.get());
        sums_.emplace_back(std::move(temporary), call);
        break;
      }
      case Kind::send:
      case Kind::receive: break;
    }
  }

  void move(const std::byte* from, std::byte* to, std::int64_t bytes) {
    if (from != to) Device::move(queue_, from, to, bytes);
  }
  void sum(std::vector<const std::byte*> parts, std::int64_t count, std::byte* to) {
    std::mt19937_64 draw(order_);
    if (order_ != 0) std::shuffle(parts.begin(), parts.end(), draw);
    Device::sum_in_order(queue_, std::span<const std::byte* const>(parts), DType::f32, DType::f32, count,
                         Write::overwrite, reinterpret_cast<float*>(to));
  }

  Queue& queue_;
  std::uint64_t order_;
  std::vector<std::pair<std::shared_ptr<std::byte>, comm::nccl::Call>> sums_;
};

}  // namespace fsdp::testing
