// SPDX-License-Identifier: Apache-2.0
/// @file
/// Groups of NCCL calls and their treatment by the library: whether it would accept them, whether ranks agree, and the
/// effect of the calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <tessera/comm/nccl_table.hpp>
#include <tessera/comm/transfer.hpp>
#include <tessera/fsdp/core/error.hpp>

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

/// The number of bytes that a rank reads for a call, and that it writes.
inline std::int64_t bytes_sent(const comm::nccl::Call& call, int rank, int size) {
  using Kind = comm::nccl::Call::Kind;
  const bool reads = call.kind != Kind::receive && (call.kind != Kind::broadcast || call.peer == rank);
  return reads ? call.count * size_of(call.dtype) * (call.kind == Kind::reduce_scatter ? size : 1) : 0;
}
inline std::int64_t bytes_received(const comm::nccl::Call& call, int rank, int size) {
  using Kind = comm::nccl::Call::Kind;
  const bool writes = call.kind != Kind::send && (call.kind != Kind::reduce || call.peer == rank);
  return writes ? call.count * size_of(call.dtype) * (call.kind == Kind::all_gather ? size : 1) : 0;
}

/// Whether send and receive buffers overlap in a way that NCCL's in-place rules do not allow.
inline bool has_forbidden_overlap(const comm::nccl::Call& call, int rank, int size) {
  using Kind = comm::nccl::Call::Kind;
  const bool rooted = call.kind == Kind::broadcast || call.kind == Kind::reduce;
  if (point_to_point(call) || (rooted && call.peer != rank)) return false;
  const bool apart =
      call.from + bytes_sent(call, rank, size) <= call.to || call.to + bytes_received(call, rank, size) <= call.from;
  const std::int64_t own = rank * call.count * size_of(call.dtype);
  return !apart && call.to + (call.kind == Kind::all_gather ? own : 0) !=
                       call.from + (call.kind == Kind::reduce_scatter ? own : 0);
}

/// Returns the reason for which NCCL would reject a call; empty if it would accept it.
inline std::string refusal_of(const comm::nccl::Call& call, int rank, int size) {
  using Kind = comm::nccl::Call::Kind;
  const bool reads = call.kind != Kind::receive, writes = bytes_received(call, rank, size) > 0;
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

/// Performs one rank's part of a group whose sources are copies. Contributions are added in an order drawn from
/// `order`; 0: rank order.
inline void perform(int rank, const NcclCallsByRank& group, std::uint64_t order) {
  using Kind = comm::nccl::Call::Kind;
  NcclCallsByRank collectives;
  for (const auto& [peer, calls] : group) collectives[peer] = collectives_of(calls);
  std::size_t collective = 0;
  std::map<int, std::size_t> received;
  for (const comm::nccl::Call& call : group.at(rank)) {
    if (call.kind == Kind::send) continue;
    const std::int64_t bytes = call.count * size_of(call.dtype);
    if (call.kind == Kind::receive) {
      const NcclCalls sent = calls_with(group.at(call.peer), Kind::send, rank);
      std::copy_n(sent[received[call.peer]++].from, bytes, call.to);
      continue;
    }
    std::vector<comm::Contribution> parts;
    for (const auto& [peer, calls] : collectives) parts.push_back({calls[collective].from, DType::f32});
    ++collective;
    if (call.kind == Kind::all_gather) {
      std::byte* to = call.to;
      for (const comm::Contribution& part : parts) to = std::copy_n(part.data, bytes, to);
    } else if (call.kind == Kind::broadcast) {
      std::copy_n(parts[static_cast<std::size_t>(call.peer)].data, bytes, call.to);
    } else if (call.kind != Kind::reduce || call.peer == rank) {
      if (call.kind == Kind::reduce_scatter)
        for (comm::Contribution& part : parts) part.data += rank * bytes;
      std::mt19937_64 draw(order);
      if (order != 0) std::shuffle(parts.begin(), parts.end(), draw);
      comm::sum_in_order(parts, DType::f32, call.count, Write::overwrite, reinterpret_cast<float*>(call.to), 1);
    }
  }
}

}  // namespace fsdp::testing
