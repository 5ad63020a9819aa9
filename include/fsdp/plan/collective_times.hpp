// SPDX-License-Identifier: Apache-2.0
/// @file
/// The duration of a collective that runs alone, by latency-bandwidth models of the algorithms in use, and its demand
/// on links.
///
/// B: bytes of the whole buffer, n: ranks, m: nodes, g = n / m: ranks per node. A message takes `latency` plus the time
/// of its bytes at the link's bandwidth. If an algorithm uses both kinds of links at once, the slower link determines
/// the time. Not here: several collectives that share a link (virtual_time.hpp). Source: Thakur, Rabenseifner and
/// Gropp, Optimization of Collective Communication Operations in MPICH, 2005.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/plan/cluster.hpp>

namespace fsdp::plan {

/// The links that ranks share. `node`: into a rank from its node; `network`: into a node; `host`: between a rank's
/// device and its host.
enum class Link : std::uint8_t { node, network, host };
inline constexpr std::size_t link_count = 3;  ///< number of values of Link
/// Returns the name in tables and JSON: "node".
std::string_view name_of(Link link);

/// One number per link.
using ByLink = std::array<double, link_count>;

/// The members of a communicator: a rank, the rank plus `stride`, the rank plus 2 `stride`, ...
struct Members {
  std::int64_t ranks = 1;
  /// Distance between two members; all ranks form such communicators, which run at the same time.
  std::int64_t stride = 1;

  friend constexpr bool operator==(const Members&, const Members&) = default;
};

/// The distribution of a communicator's members over the nodes of a cluster.
struct Spread {
  std::int64_t nodes = 1;     ///< m: number of nodes of one communicator
  std::int64_t per_node = 1;  ///< g: number of its members per node
  std::int64_t beside = 1;    ///< number of such communicators in a node, which share the node's network link
};
/// Returns the distribution of members. If they do not fill nodes evenly, the number per node is the largest one that
/// divides both their number and the places in a node.
Spread spread_of(const Cluster& cluster, const Members& members);

/// The cost of a collective on idle links.
struct CollectiveTime {
  double latency = 0;   ///< seconds during which no link is busy
  double transfer = 0;  ///< seconds of the transfer on the slowest link
  /// `node`: bytes into one rank; `network`: bytes into a whole node, for all communicators of its ranks.
  ByLink bytes = {};
  ByLink demand = {};  ///< fraction of each link's bandwidth that the transfer uses, 0 to 1

  /// Returns the total seconds on idle links.
  double seconds() const { return latency + transfer; }
};

/// Returns the time of a collective on `bytes` of a whole buffer, counted as in comm::Record; zero on one rank.
///
/// all_gather, reduce_scatter: one ring with (n-m) node latencies and (m-1) network latencies. It transfers B (g-1) / g
/// within nodes and, at the same time, B (m-1) / m between nodes. With Cluster::gathers_in_stages: between nodes first
/// and then within, with (g-1) and (m-1) latencies and both transfers one after the other. all_reduce: the faster of
/// twice that, and a tree up and down, with 2 (log2 g + log2 m) latencies and 2 B on each link. all_to_all of B
/// received bytes: one latency, B (g-1) / n within a node, and B (n-g) / n per rank between nodes. reduce,
/// gather_bytes: a tree up and down. broadcast, barrier: a tree in one direction. The last four transfer few bytes.
CollectiveTime collective_time(const Cluster& cluster, comm::Op op, std::int64_t bytes, const Members& members);

/// Returns the time of a copy between a rank's device and its host's memory, one way.
CollectiveTime host_copy_time(const Cluster& cluster, std::int64_t bytes);

}  // namespace fsdp::plan
