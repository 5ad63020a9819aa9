// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/cluster.hpp>

#include <bit>
#include <numeric>

#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/plan/plan.hpp>

namespace fsdp::plan {
namespace {

/// Plausible ranges by kind of value: a wrong unit, such as TFLOP/s for FLOP/s, is outside.
/// @{
constexpr Range<double> rates{.least = 1e6, .most = 1e18};       // FLOP/s
constexpr Range<double> bandwidths{.least = 1e5, .most = 1e15};  // bytes/s
constexpr Range<double> latencies{.least = 0, .most = 1};        // seconds
constexpr Range<double> shares{.least = 0.01, .most = 1};
constexpr Range<std::int64_t> memories{.least = std::int64_t{1} << 20, .most = std::int64_t{1} << 50};
constexpr Range<std::int64_t> counts{.least = 1, .most = 1 << 24};
constexpr Range<std::int64_t> reserves{.least = 0, .most = std::int64_t{1} << 50};
/// @}

template <class T>
void require_within(std::string_view name, T value, const Range<T>& range, std::string_view unit) {
  require<InputError>(range.holds(value), name, " is ", value, ", which no machine has; give ", range.text(), " ",
                      unit);
}

/// Throws InputError if an achieved rate is above the peak.
void require_reached(std::string_view name, double rate, std::string_view peak_name, double peak) {
  require<InputError>(rate <= peak, name, " is ", rate, ", above ", peak_name, ", ", peak,
                      "; a rate that is reached is not above its peak");
}

/// The same for the rate of smaller matmuls, which may be unknown (0).
void require_reached_or_zero(std::string_view name, double rate, std::string_view peak_name, double peak) {
  if (rate != 0) require_within(name, rate, rates, "FLOP/s, or 0 where it is as that of large ones");
  require_reached(name, rate, peak_name, peak);
}

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

std::int64_t Cluster::runtime(const UsedCommunicators& used) const {
  return runtime_bytes + std::max(used.all - 1, 0) * communicator_bytes + used.exchanging * exchange_bytes;
}

double Cluster::matmul(DType type, std::int64_t smallest) const {
  const bool fp32 = type == DType::f32;
  const double large = fp32 ? matmul_fp32 : matmul_bf16;
  if (smallest >= least_large) return large;
  const double known = smallest >= least_medium ? (fp32 ? matmul_fp32_medium : matmul_bf16_medium)
                                                : (fp32 ? matmul_fp32_small : matmul_bf16_small);
  return known > 0 ? known : large;
}

void Cluster::validate() const {
  require<InputError>(device == "cuda" || device == "cpu", "device is '", device, "'; give \"cuda\" or \"cpu\"");
  require_within("ranks", ranks, counts, "ranks");
  require_within("ranks_per_node", ranks_per_node, counts, "ranks");
  require<InputError>(ranks <= ranks_per_node || ranks % ranks_per_node == 0, "ranks is ", ranks,
                      ", which do not fill nodes of ", ranks_per_node,
                      " (ranks_per_node); give a multiple of it, or "
                      "fewer ranks than one node has");
  require_within("threads", threads, counts, "threads");
  require_within("memory", memory, memories, "bytes");
  require_within("host_memory", host_memory, memories, "bytes");
  require_within("runtime_bytes", runtime_bytes, reserves, "bytes");
  require_within("communicator_bytes", communicator_bytes, reserves, "bytes");
  require_within("exchange_bytes", exchange_bytes, reserves, "bytes");
  require<InputError>(runtime_bytes + exchange_bytes < memory, "runtime_bytes is ", runtime_bytes,
                      " and exchange_bytes is ", exchange_bytes, ", and memory is ", memory,
                      "; the runtime would leave nothing");
  require_within("peak_bf16", peak_bf16, rates, "FLOP/s");
  require_within("peak_fp32", peak_fp32, rates, "FLOP/s");
  require_within("matmul_bf16", matmul_bf16, rates, "FLOP/s");
  require_within("matmul_fp32", matmul_fp32, rates, "FLOP/s");
  require_within("attention", attention, rates, "FLOP/s");
  require_within("memory_bandwidth", memory_bandwidth, bandwidths, "bytes/s");
  require_within("collective_latency", collective_latency, latencies, "seconds");
  require_within("node_latency", node_latency, latencies, "seconds");
  require_within("node_bandwidth", node_bandwidth, bandwidths, "bytes/s");
  require_within("network_latency", network_latency, latencies, "seconds");
  require_within("network_bandwidth", network_bandwidth, bandwidths, "bytes/s");
  require_within("host_bandwidth", host_bandwidth, bandwidths, "bytes/s");
  require_within("beside_collectives", beside_collectives, shares, "of the speed alone");
  require_reached("matmul_bf16", matmul_bf16, "peak_bf16", peak_bf16);
  require_reached("attention", attention, "peak_bf16", peak_bf16);
  require_reached_or_zero("attention_own", attention_own, "peak_bf16", peak_bf16);
  require_reached("matmul_fp32", matmul_fp32, "peak_fp32", peak_fp32);
  require_reached_or_zero("matmul_bf16_medium", matmul_bf16_medium, "peak_bf16", peak_bf16);
  require_reached_or_zero("matmul_bf16_small", matmul_bf16_small, "peak_bf16", peak_bf16);
  require_reached_or_zero("matmul_fp32_medium", matmul_fp32_medium, "peak_fp32", peak_fp32);
  require_reached_or_zero("matmul_fp32_small", matmul_fp32_small, "peak_fp32", peak_fp32);
}

std::string_view name_of(Link link) {
  constexpr std::array<std::string_view, link_count> names = {"node", "network", "host"};
  return name_from(names, link);
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
