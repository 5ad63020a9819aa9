// SPDX-License-Identifier: Apache-2.0
/// @file
/// The cluster file of a calibration.
#include <sys/sysinfo.h>

#include <algorithm>
#include <iomanip>
#include <map>
#include <sstream>
#include <string_view>
#include <type_traits>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/plan/cluster.hpp>

#include "calibration.hpp"

namespace fsdp::calibrate {
namespace {

/// A figure's median over its samples, with the smallest and the largest sample.
struct Figure {
  double value, least, most;
};

/// Returns a text such as "1.95e+11 to 2.03e+11 in 9 repeats".
std::string spread_text(const Figure& figure, std::int64_t repeats) {
  std::ostringstream text;
  text << std::setprecision(3) << figure.least << " to " << figure.most << " in " << repeats << " repeats";
  return text.str();
}

/// The figures of a calibration, with the note on each in the file.
class Figures {
 public:
  explicit Figures(const Calibration& measured) : of_(measured) {
    set_rates();
    set_links();
    set_queues();
    set_memory();
  }

  std::string file() const {
    std::ostringstream text;
    text << "# A cluster's file for tessera plan, measured by tessera calibrate: " << of_.places.nodes
         << (of_.places.nodes > 1 ? " nodes, " : " node, ") << of_.places.per_node
         << (of_.places.per_node > 1 ? " ranks" : " rank") << " each, " << of_.threads
         << (of_.threads > 1 ? " threads\n" : " thread\n") << std::setprecision(4);
    plan::Cluster::visit(cluster_, [&]<class T>(const char* name, const T& value, const char* help) {
      if (std::string_view(name).starts_with("network_") && !of_.network) {
        text << "# " << name << ": not measured, one node; give it to plan several\n";
        return;
      }
      text << name << " = ";
      if constexpr (std::is_same_v<T, std::string>)
        text << '"' << value << '"';
      else if constexpr (std::is_same_v<T, double>)
        text << value;
      else
        text << std::boolalpha << value;
      const auto note = notes_.find(name);
      text << "  # " << help << (note == notes_.end() ? "" : "; " + note->second) << '\n';
    });
    return text.str();
  }
  const plan::Cluster& cluster() const { return cluster_; }

 private:
  template <class F>
  Figure figure(const F& value_in_round) const {
    std::vector<double> values;
    while (std::ssize(values) < of_.repeats) values.push_back(value_in_round(values.size()));
    const auto [least, most] = std::ranges::minmax(values);
    return {.value = median(values), .least = least, .most = most};
  }
  double set(double& value, const char* name, const Figure& figure) {
    value = figure.value;
    notes_[name] = spread_text(figure, of_.repeats);
    return figure.most;
  }
  Figure rate(const Timed& of) const {
    return figure([&](std::size_t round) { return of.amount / of_.rounds.seconds(of.at, round); });
  }

  void set_rates() {
    plan::Cluster& c = cluster_;
    c.peak_bf16 = std::max({set(c.matmul_bf16, "matmul_bf16", rate(of_.matmul_bf16[0])),
                            set(c.matmul_bf16_medium, "matmul_bf16_medium", rate(of_.matmul_bf16[1])),
                            set(c.matmul_bf16_small, "matmul_bf16_small", rate(of_.matmul_bf16[2])),
                            set(c.attention, "attention", rate(of_.attention))});
    c.peak_fp32 = std::max({set(c.matmul_fp32, "matmul_fp32", rate(of_.matmul_fp32[0])),
                            set(c.matmul_fp32_medium, "matmul_fp32_medium", rate(of_.matmul_fp32[1])),
                            set(c.matmul_fp32_small, "matmul_fp32_small", rate(of_.matmul_fp32[2]))});
    notes_["peak_bf16"] = notes_["peak_fp32"] = "the best sample; a data sheet says more";
    set(c.memory_bandwidth, "memory_bandwidth", rate(of_.operations));
    set(c.host_bandwidth, "host_bandwidth", rate(of_.copies));
  }

  /// Returns the seconds of a gather of few bytes, which are only latency.
  double start(const LinkCases& of, std::size_t round) const {
    return of_.rounds.seconds(of.few, round) / of.calls_of_few;
  }
  /// Returns the bytes per second that arrive at a rank, without the time of a call with few bytes. Gathers and
  /// reductions have equal weight, since a step gathers about as much as it reduces.
  Figure bandwidth(const LinkCases& of, double ranks_that_share) const {
    const double moved = of.bytes * std::max(of.ranks - 1, 1) / of.ranks * ranks_that_share;
    return figure([&, moved](std::size_t round) {
      const double both =
          (of_.rounds.seconds(of.gather, round) + of_.rounds.seconds(of.scatter, round)) / of.calls_of_many;
      return moved / std::max(both / 2 - start(of, round), both / 4);
    });
  }
  /// Half of the time of a call with few bytes is attributed to its start, the rest to the messages between ranks.
  void set_links() {
    const LinkCases& nearest = of_.node ? *of_.node : *of_.network;
    set(cluster_.collective_latency, "collective_latency",
        figure([&](std::size_t round) { return start(nearest, round) / 2; }));
    if (of_.node) {
      set(cluster_.node_latency, "node_latency",
          figure([&](std::size_t round) { return start(*of_.node, round) / 2 / std::max(of_.node->ranks - 1, 1); }));
      set(cluster_.node_bandwidth, "node_bandwidth", bandwidth(*of_.node, 1));
    }
    if (of_.network) {
      set(cluster_.network_latency, "network_latency", figure([&](std::size_t round) {
            const double messages = start(*of_.network, round) - start(nearest, round) / 2;
            return std::max(messages, 0.0) / (of_.network->ranks - 1);
          }));
      set(cluster_.network_bandwidth, "network_bandwidth", bandwidth(*of_.network, of_.places.per_node));
    }
    set_links_that_are_missing();
  }
  void set_links_that_are_missing() {
    if (!of_.node) {
      cluster_.node_latency = cluster_.network_latency;
      cluster_.node_bandwidth = cluster_.network_bandwidth;
      notes_["node_latency"] = notes_["node_bandwidth"] = "not measured: one rank on each node";
    }
    if (!of_.network) {  // these figures are omitted in the file
      cluster_.network_latency = cluster_.node_latency;
      cluster_.network_bandwidth = cluster_.node_bandwidth;
    }
    if (of_.node && of_.node->ranks == 1)
      notes_["node_latency"] = notes_["node_bandwidth"] = "not measured, one rank: a copy of its own";
  }
  void set_queues() {
    cluster_.collectives_have_queues = of_.queues;
    if (!of_.queues)
      notes_["beside_collectives"] = "they take the ranks' own time";
    else if (of_.beside_collectives.empty())
      notes_["beside_collectives"] =
          of_.node && of_.node->ranks == 1 ? "not measured: one rank" : "not measured: gathers end too soon";
    else
      set(cluster_.beside_collectives, "beside_collectives",
          figure([&](std::size_t round) { return of_.beside_collectives[round]; }));
  }
  void set_memory() {
    const bool on_host = of_.device == device::Cpu::name;
    cluster_.device = of_.device;
    cluster_.ranks_per_node = of_.places.per_node;
    cluster_.ranks = cluster_.ranks_per_node * of_.places.nodes;
    cluster_.threads = of_.threads;
    cluster_.memory = of_.memory.memory;
    cluster_.runtime_bytes = of_.memory.runtime_bytes;
    cluster_.exchange_bytes = of_.memory.exchange_bytes;
    struct sysinfo machine {};
    cluster_.host_memory = ::sysinfo(&machine) == 0 ? static_cast<std::int64_t>(machine.totalram) * machine.mem_unit
                                                    : of_.memory.memory * of_.places.per_node;
    notes_["memory"] = on_host ? "nine tenths of what was free" : "all of the device's";
    notes_["runtime_bytes"] = on_host ? "resident before any tensor" : "taken without tensors, by others too";
    notes_["host_memory"] = "of rank 0's node";
  }

  const Calibration& of_;
  plan::Cluster cluster_;
  std::map<std::string, std::string> notes_;  // notes by key of the file
};

}  // namespace

std::string cluster_file(const Calibration& measured) {
  const Figures figures(measured);
  figures.cluster().validate();
  return figures.file();
}

}  // namespace fsdp::calibrate
