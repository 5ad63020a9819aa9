// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long a collective takes alone, by latency-bandwidth models of the algorithms in use, and what it takes of links.
///
/// B: bytes of the whole buffer, n: ranks, m: nodes, g = n / m: ranks of a node. A message takes `latency` and then its
/// bytes at the link's bandwidth. Where an algorithm keeps both kinds of links busy at once, the slower one counts. Not
/// here: what happens when several collectives share a link (virtual_time.hpp).
/// Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, 2005.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/comm/traffic.hpp>
#include <tessera/fsdp/plan/cluster.hpp>

namespace fsdp::plan {

/// The links that ranks share. `node` is the way into a rank from its node; `network` that into a node, `host` that
/// between a rank's device and its host.
enum class Link : std::uint8_t { node, network, host };
inline constexpr std::size_t link_count = 3;  ///< values of Link
/// Returns the name in tables and JSON: "node".
std::string_view name_of(Link link);

/// Numbers by link.
using ByLink = std::array<double, link_count>;

/// The ranks of a communicator and where they are: `first`, `first + stride`, ...
struct Members {
  std::int64_t ranks = 1;
  std::int64_t stride = 1;  ///< between two of them; all ranks form such communicators, and use them at the same time

  friend constexpr bool operator==(const Members&, const Members&) = default;
};

/// How members lie in the nodes of a cluster.
struct Spread {
  std::int64_t nodes = 1;     ///< m, of one communicator
  std::int64_t per_node = 1;  ///< g
  std::int64_t beside = 1;    ///< communicators like it in a node, which share the way into it
};
/// Returns it. Members that do not fill nodes evenly are spread as the largest number that divides both.
Spread spread_of(const Cluster& cluster, const Members& members);

/// What a collective takes on idle links.
struct CollectiveTime {
  double latency = 0;   ///< seconds in which no link is busy
  double transfer = 0;  ///< seconds of the slowest link
  ByLink bytes = {};   ///< into a rank by `node`, into a whole node, from all of its ranks' communicators, by `network`
  ByLink demand = {};  ///< part of each link's bandwidth that it takes while it transfers, 0 to 1

  /// All of it on idle links.
  double seconds() const { return latency + transfer; }
};

/// Returns the time of a collective on `bytes` of a whole buffer, counted as comm::Record does. On one rank: none.
///
/// all_gather, reduce_scatter: one ring, (n - m) node latencies and (m - 1) of the network, B (g - 1) / g inside
/// of nodes beside B (m - 1) / m between them; or between nodes first and then inside (Cluster::gathers_in_stages): (g
/// - 1) and (m - 1) latencies, and both transfers one after the other. all_reduce: the faster of that twice, and a tree
/// up and down: 2 (log2 g + log2 m) latencies and 2 B on each link. all_to_all, of B received bytes: one latency, B (g
/// - 1) / n inside, B (n - g) / n of each rank between nodes. reduce, gather_bytes: a tree up and down; broadcast,
/// barrier: once down. All of few bytes.
CollectiveTime collective_time(const Cluster& cluster, comm::Op op, std::int64_t bytes, const Members& members);

/// Returns the time of a copy between a rank's device and its host's memory, one way.
CollectiveTime host_copy_time(const Cluster& cluster, std::int64_t bytes);

}  // namespace fsdp::plan
