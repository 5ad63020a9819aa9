// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/collective_times.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::plan {
namespace {

constexpr auto node = static_cast<std::size_t>(Link::node);
constexpr auto network = static_cast<std::size_t>(Link::network);
constexpr auto host = static_cast<std::size_t>(Link::host);

/// Returns the number of rounds of a tree over `ranks` ranks: the logarithm to base 2, rounded up.
double rounds(std::int64_t ranks) { return static_cast<double>(std::bit_width(static_cast<std::uint64_t>(ranks - 1))); }

/// Sizes of a collective as floating-point numbers.
struct Sizes {
  double bytes, ranks, nodes, per_node, beside;
};

/// Sets the transfer time from `bytes` by link: the links transfer at the same time, or one after the other.
void set_transfer(CollectiveTime& time, const Cluster& cluster, bool one_after_the_other = false) {
  const double inside = time.bytes[node] / cluster.node_bandwidth;
  const double between = time.bytes[network] / cluster.network_bandwidth;
  time.transfer = one_after_the_other ? inside + between : std::max(inside, between);
  if (time.transfer <= 0) return;
  time.demand[node] = inside / time.transfer;
  time.demand[network] = between / time.transfer;
}

CollectiveTime ring(const Cluster& cluster, const Sizes& of) {
  CollectiveTime time{.latency =
                          (of.ranks - of.nodes) * cluster.node_latency + (of.nodes - 1) * cluster.network_latency};
  time.bytes[node] = of.bytes * (of.per_node - 1) / of.per_node;
  time.bytes[network] = of.bytes * (of.nodes - 1) / of.nodes * of.beside;
  set_transfer(time, cluster);
  return time;
}

CollectiveTime in_stages(const Cluster& cluster, const Sizes& of) {
  CollectiveTime time = ring(cluster, of);
  time.latency = (of.per_node - 1) * cluster.node_latency + (of.nodes - 1) * cluster.network_latency;
  set_transfer(time, cluster, true);
  return time;
}

CollectiveTime gather(const Cluster& cluster, const Sizes& of) {
  return cluster.gathers_in_stages && of.nodes > 1 && of.per_node > 1 ? in_stages(cluster, of) : ring(cluster, of);
}

/// `passes`: 2 for up and down, 1 for one direction.
CollectiveTime tree(const Cluster& cluster, const Sizes& of, double passes) {
  const double latency = rounds(static_cast<std::int64_t>(of.per_node)) * cluster.node_latency +
                         rounds(static_cast<std::int64_t>(of.nodes)) * cluster.network_latency;
  CollectiveTime time{.latency = passes * latency};
  if (of.per_node > 1) time.bytes[node] = passes * of.bytes;
  if (of.nodes > 1) time.bytes[network] = passes * of.bytes * of.beside;
  set_transfer(time, cluster);
  return time;
}

CollectiveTime all_reduce(const Cluster& cluster, const Sizes& of) {
  CollectiveTime twice = gather(cluster, of);
  twice.latency *= 2;
  twice.transfer *= 2;
  for (double& bytes : twice.bytes) bytes *= 2;
  const CollectiveTime other = tree(cluster, of, 2);
  return other.seconds() < twice.seconds() ? other : twice;
}

CollectiveTime all_to_all(const Cluster& cluster, const Sizes& of) {
  CollectiveTime time{.latency = of.nodes > 1 ? cluster.network_latency : cluster.node_latency};
  time.bytes[node] = of.bytes * (of.per_node - 1) / of.ranks;
  time.bytes[network] = of.bytes * (of.ranks - of.per_node) / of.ranks * of.per_node * of.beside;
  set_transfer(time, cluster);
  return time;
}

CollectiveTime alone(const Cluster& cluster, comm::Op op, const Sizes& of) {
  switch (op) {
    case comm::Op::all_gather:
    case comm::Op::reduce_scatter: return gather(cluster, of);
    case comm::Op::all_reduce: return all_reduce(cluster, of);
    case comm::Op::all_to_all: return all_to_all(cluster, of);
    case comm::Op::reduce:
    case comm::Op::gather_bytes: return tree(cluster, of, 2);
    case comm::Op::broadcast:
    case comm::Op::barrier: return tree(cluster, of, 1);
  }
  throw LogicError("collective_time: an unknown kind of collective");
}

}  // namespace

std::string_view name_of(Link link) {
  constexpr std::array<std::string_view, link_count> names = {"node", "network", "host"};
  return names[static_cast<std::size_t>(link)];
}

Spread spread_of(const Cluster& cluster, const Members& members) {
  const std::int64_t present = cluster.ranks_of_node();
  // Ranks of one communicator that a node has room for
  const std::int64_t places = std::max<std::int64_t>(1, present / members.stride);
  const std::int64_t per_node = members.ranks <= places ? members.ranks : std::gcd(members.ranks, places);
  return {
      .nodes = members.ranks / per_node, .per_node = per_node, .beside = std::max<std::int64_t>(1, present / per_node)};
}

CollectiveTime collective_time(const Cluster& cluster, comm::Op op, std::int64_t bytes, const Members& members) {
  require(bytes >= 0 && members.ranks >= 1 && members.stride >= 1, "collective_time: ", bytes, " bytes over ",
          members.ranks, " ranks, ", members.stride, " apart");
  if (members.ranks == 1) return {};
  const Spread spread = spread_of(cluster, members);
  CollectiveTime time = alone(cluster, op,
                              {.bytes = static_cast<double>(bytes),
                               .ranks = static_cast<double>(members.ranks),
                               .nodes = static_cast<double>(spread.nodes),
                               .per_node = static_cast<double>(spread.per_node),
                               .beside = static_cast<double>(spread.beside)});
  time.latency += cluster.collective_latency;
  return time;
}

CollectiveTime host_copy_time(const Cluster& cluster, std::int64_t bytes) {
  CollectiveTime time{.transfer = static_cast<double>(bytes) / cluster.host_bandwidth};
  time.bytes[host] = static_cast<double>(bytes);
  time.demand[host] = bytes > 0 ? 1 : 0;
  return time;
}

}  // namespace fsdp::plan
