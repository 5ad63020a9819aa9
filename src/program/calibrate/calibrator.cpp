// SPDX-License-Identifier: Apache-2.0
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/identity.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/trainer/run/step_memory.hpp>

#include "../../trainer/report/files.hpp"
#include "rounds.hpp"
#include "work.hpp"

namespace fsdp::calibrate {
namespace {

/// A figure's median over its samples, with the smallest and the largest sample.
struct Figure {
  double value, least, most;
};

/// The figures of a cluster, from the seconds of the slowest rank, with the note on each in the cluster's file.
class Figures {
 public:
  /// `cluster`: with its device, ranks and threads.
  Figures(const Rounds& rounds, std::int64_t repeats, plan::Cluster& cluster)
      : rounds_(rounds), repeats_(repeats), cluster_(cluster) {}

  /// Returns the cluster as a TOML file that `--cluster` reads, with the spread of each figure in a comment.
  std::string file() const {
    cluster_.validate();
    const bool one_node = cluster_.nodes() == 1;
    std::ostringstream text;
    text << "# A cluster's file for tessera plan, measured by tessera calibrate: " << cluster_.nodes()
         << (one_node ? " node, " : " nodes, ") << cluster_.ranks_per_node
         << (cluster_.ranks_per_node > 1 ? " ranks" : " rank") << " each, " << cluster_.threads
         << (cluster_.threads > 1 ? " threads\n" : " thread\n") << std::setprecision(4) << std::boolalpha;
    plan::Cluster::visit(cluster_, [&]<class T>(const char* name, const T& value, const char* help) {
      if (std::string_view(name).starts_with("network_") && one_node) {
        text << "# " << name << ": not measured, one node; give it to plan several\n";
        return;
      }
      text << name << " = ";
      if constexpr (std::is_same_v<T, std::string>)
        text << '"' << value << '"';
      else
        text << value;
      const auto note = notes_.find(name);
      text << "  # " << help << (note == notes_.end() ? "" : "; " + note->second) << '\n';
    });
    return text.str();
  }

  void set_rates(const RankWork& work) {
    plan::Cluster& c = cluster_;
    c.peak_bf16 = std::max({set(c.matmul_bf16, "matmul_bf16", rate(work.bf16[0])),
                            set(c.matmul_bf16_medium, "matmul_bf16_medium", rate(work.bf16[1])),
                            set(c.matmul_bf16_small, "matmul_bf16_small", rate(work.bf16[2])),
                            set(c.attention, "attention", rate(work.attention))});
    c.peak_fp32 = std::max({set(c.matmul_fp32, "matmul_fp32", rate(work.fp32[0])),
                            set(c.matmul_fp32_medium, "matmul_fp32_medium", rate(work.fp32[1])),
                            set(c.matmul_fp32_small, "matmul_fp32_small", rate(work.fp32[2]))});
    notes_["peak_bf16"] = notes_["peak_fp32"] = "the best sample; a data sheet says more";
    set(c.memory_bandwidth, "memory_bandwidth", rate(work.operations));
    set(c.host_bandwidth, "host_bandwidth", rate(work.copies));
  }

  /// Sets the figures of collectives within a node and between nodes, of which one can be absent. Half of the time of a
  /// call with few bytes is attributed to its start, the rest to the messages between ranks.
  void set_links(const std::optional<Link>& node, const std::optional<Link>& network) {
    plan::Cluster& c = cluster_;
    const Link& nearest = node ? *node : *network;
    set(c.collective_latency, "collective_latency", figure([&](auto round) { return start(nearest, round) / 2; }));
    if (node) {
      set(c.node_latency, "node_latency",
          figure([&](std::size_t round) { return start(*node, round) / 2 / std::max(node->ranks - 1, 1); }));
      set(c.node_bandwidth, "node_bandwidth", bandwidth(*node, 1));
    }
    if (network) {
      set(c.network_latency, "network_latency", figure([&](std::size_t round) {
            const double messages = start(*network, round) - start(nearest, round) / 2;
            return std::max(messages, 0.0) / (network->ranks - 1);
          }));
      set(c.network_bandwidth, "network_bandwidth", bandwidth(*network, static_cast<double>(c.ranks_per_node)));
    } else {  // these figures are omitted in the file
      c.network_latency = c.node_latency;
      c.network_bandwidth = c.node_bandwidth;
    }
    if (!node) {
      c.node_latency = c.network_latency;
      c.node_bandwidth = c.network_bandwidth;
    }
    if (!node || node->ranks == 1)
      notes_["node_latency"] = notes_["node_bandwidth"] =
          node ? "not measured, one rank: a copy of its own" : "not measured: one rank on each node";
  }

  /// `queues`: whether collectives have separate queues. `speeds`: of matmuls during gathers, by round; may be empty.
  void set_queues(bool queues, const std::vector<double>& speeds, bool one_rank) {
    cluster_.collectives_have_queues = queues;
    if (!speeds.empty())
      set(cluster_.beside_collectives, "beside_collectives", figure([&](std::size_t round) { return speeds[round]; }));
    else
      notes_["beside_collectives"] = !queues    ? "they take the ranks' own time"
                                     : one_rank ? "not measured: one rank"
                                                : "not measured: gathers end too soon";
  }

  /// Sets the host memory. The cluster has the rest already.
  void set_memory() {
    const bool on_host = cluster_.device == device::Cpu::name;
    struct sysinfo machine {};
    cluster_.host_memory = ::sysinfo(&machine) == 0 ? static_cast<std::int64_t>(machine.totalram) * machine.mem_unit
                                                    : cluster_.memory * cluster_.ranks_per_node;
    notes_["memory"] = on_host ? "nine tenths of what was free" : "all of the device's";
    notes_["runtime_bytes"] = on_host ? "resident before any tensor" : "taken without tensors, by others too";
    notes_["host_memory"] = "of rank 0's node";
    notes_["attention_own"] = "not measured";
  }

 private:
  template <class F>
  Figure figure(const F& value_in_round) const {
    std::vector<double> values;
    while (std::ssize(values) < repeats_) values.push_back(value_in_round(values.size()));
    const auto [least, most] = std::ranges::minmax(values);
    return {.value = median(values), .least = least, .most = most};
  }
  /// Notes "1.95e+11 to 2.03e+11 in 9 repeats", and returns the largest sample.
  double set(double& value, const char* name, const Figure& figure) {
    value = figure.value;
    std::ostringstream note;
    note << std::setprecision(3) << figure.least << " to " << figure.most << " in " << repeats_ << " repeats";
    notes_[name] = note.str();
    return figure.most;
  }
  Figure rate(const Work& of) const {
    return figure([&, amount = of.amount()](std::size_t round) { return amount / rounds_.seconds(of.at, round); });
  }
  /// Returns the seconds of a gather of few bytes, which are only latency.
  double start(const Link& of, std::size_t round) const { return rounds_.seconds(of.few_at, round) / of.calls_of_few; }
  /// Returns the bytes per second that arrive at a rank, without the time of a call with few bytes. Gathers and
  /// reductions have equal weight, since a step gathers about as much as it reduces.
  Figure bandwidth(const Link& of, double ranks_that_share) const {
    const double moved = of.bytes * std::max(of.ranks - 1, 1) / of.ranks * ranks_that_share;
    return figure([&, moved](std::size_t round) {
      const double both =
          (rounds_.seconds(of.gather_at, round) + rounds_.seconds(of.scatter_at, round)) / of.calls_of_many;
      return moved / std::max(both / 2 - start(of, round), both / 4);
    });
  }

  const Rounds& rounds_;
  std::int64_t repeats_;
  plan::Cluster& cluster_;
  std::map<std::string, std::string> notes_;  // notes by key of the file
};

/// Returns the resident memory of this process in bytes.
std::int64_t resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  pages >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

/// Sets the placement of ranks on hosts, by rank. Throws InputError for a placement that plans do not support.
void set_places(plan::Cluster& cluster, std::span<const std::string> hosts) {
  std::vector<std::pair<std::string_view, int>> nodes;  // nodes with their number of ranks, in the order of ranks
  for (const std::string& host : hosts) {
    if (nodes.empty() || nodes.back().first != host) nodes.emplace_back(host, 0);
    ++nodes.back().second;
  }
  constexpr const char* then =
      "; plans have equally many ranks on each node, one node after the other: start them so "
      "(mpirun --map-by slot)";
  for (std::size_t node = 1; node < nodes.size(); ++node) {
    const auto& [host, ranks] = nodes[node];
    const auto first = std::ranges::find(nodes, host, &std::pair<std::string_view, int>::first);
    require<InputError>(first == nodes.begin() + static_cast<std::ptrdiff_t>(node), "calibrate: ", host,
                        " has ranks again behind those of ", nodes[node - 1].first, then);
    require<InputError>(ranks == nodes[0].second, "calibrate: ", nodes[0].first, " has ", nodes[0].second,
                        " of the ranks and ", host, " ", ranks, then);
  }
  cluster.ranks_per_node = nodes[0].second;
  cluster.ranks = cluster.ranks_per_node * std::ssize(nodes);
}

/// Runs the measurements on all ranks. Lives as long as one calibration.
class Calibrator {
 public:
  Calibrator(const cli::Calibrate& options, const Subject& subject)
      : options_(options),
        subject_(subject),
        all_(subject.all),
        device_(subject.device),
        threads_(comm::rank_threads(options.launch.threads, all_.size())) {
    const std::int64_t resident = resident_bytes() / (subject.shares_process ? all_.size() : 1);
    cluster_.device = device_.device;
    cluster_.threads = threads_;
    cluster_.memory = train::host_memory_of_rank(all_.size()) + resident;
    cluster_.runtime_bytes = resident;
    set_places(cluster_, comm::gather_texts(all_, machine_name(), "hosts"));
    train::use_threads(threads_);
    const int per_node = static_cast<int>(cluster_.ranks_per_node);
    if (per_node > 1 || cluster_.nodes() == 1) node_ = subject.link([&](int rank) { return rank / per_node; });
    if (cluster_.nodes() > 1) network_ = subject.link([&](int rank) { return rank % per_node; });
  }

  /// Runs all measurements and returns the content of the cluster file.
  std::string run() {
    if (device_.free_bytes != nullptr) {  // the first all_to_all allocates memory of the device
      const std::int64_t before = device_.free_bytes();
      nearest().exchange();
      cluster_.exchange_bytes = std::max<std::int64_t>(before - device_.free_bytes(), 0);
    }
    work_.emplace(all_, device_, threads_);
    Rounds rounds;
    work_->add_to(rounds);
    for (std::optional<Link>* link : {&node_, &network_})
      if (*link) (*link)->add_to(rounds);
    rounds.run(options_.repeats, [&] { all_.barrier({"calibrate"}); });
    all_.reduce(rounds.samples(), comm::Reduction::max, {"calibrate"});
    Figures figures(rounds, options_.repeats, cluster_);
    figures.set_rates(*work_);
    figures.set_links(node_, network_);
    figures.set_queues(device_.overlaps, measure_beside(rounds), node_ && node_->ranks == 1);
    measure_memory();
    figures.set_memory();
    return figures.file();
  }

 private:
  const Link& nearest() const { return node_ ? *node_ : *network_; }

  /// Returns the relative speeds of large matmuls during gathers, by round; empty if gathers end too soon.
  std::vector<double> measure_beside(const Rounds& rounds) {
    constexpr int most_gathers = 4000;
    if (!device_.overlaps || all_.size() == 1) return {};
    const double gather_seconds = rounds.median_seconds(nearest().gather_at) / nearest().calls_of_many;
    const double matmul_seconds = rounds.median_seconds(work_->bf16[0].at);
    int gathers = static_cast<int>(std::clamp(2 * matmul_seconds / gather_seconds, 2.0, 1e3));
    for (; gathers <= most_gathers; gathers *= 2)
      if (std::vector<double> speeds = speeds_next_to(gathers); !speeds.empty()) return speeds;
    return {};
  }
  /// The same with `gathers` gathers; empty if the gathers of a rank ended before its matmuls. Collective.
  std::vector<double> speeds_next_to(int gathers) {
    const Work& matmuls = work_->bf16[0];
    std::int64_t covered = 1;
    const auto begin_round = [&] {
      nearest().wait();
      all_.barrier({"calibrate"});
    };
    Rounds rounds;
    const std::size_t alone = rounds.add([&] { matmuls.run(); }, begin_round);
    const std::size_t overlapped = rounds.add(
        [&] {
          matmuls.run();
          if (nearest().last_gather_ended()) covered = 0;
        },
        [&] {
          begin_round();
          nearest().start_gathers(gathers);
        });
    rounds.run(options_.repeats);
    begin_round();
    all_.reduce(rounds.samples(), comm::Reduction::max, {"calibrate"});
    all_.reduce(std::span<std::int64_t>(&covered, 1), comm::Reduction::min, {"calibrate"});
    std::vector<double> speeds;
    for (std::size_t round = 0; covered != 0 && round < static_cast<std::size_t>(options_.repeats); ++round)
      speeds.push_back(std::min(1.0, rounds.seconds(alone, round) / rounds.seconds(overlapped, round)));
    return speeds;
  }

  /// Frees all tensors on a device, but no communicator, and measures the bytes that are still in use. Takes the least
  /// memory of all ranks, and the most that is in use. Collective.
  void measure_memory() {
    if (device_.free_bytes != nullptr) {
      work_.reset();
      for (const std::optional<Link>* link : {&node_, &network_})
        if (*link) (*link)->free_buffers();
      cluster_.memory = device_.total_bytes();
      const std::int64_t before = device_.free_bytes();
      const Link further = subject_.link([](int) { return 0; });
      further.few();
      further.scatter();
      further.free_buffers();
      cluster_.communicator_bytes = std::max<std::int64_t>(before - device_.free_bytes(), 0);
      const int others = (node_ ? 1 : 0) + (network_ ? 1 : 0);
      cluster_.runtime_bytes = std::max<std::int64_t>(
          cluster_.memory - before - cluster_.exchange_bytes - others * cluster_.communicator_bytes, 0);
    }
    std::int64_t most[] = {-cluster_.memory, cluster_.runtime_bytes, cluster_.exchange_bytes,
                           cluster_.communicator_bytes};
    all_.reduce(std::span<std::int64_t>(most), comm::Reduction::max, {"calibrate"});
    cluster_.memory = -most[0];
    cluster_.runtime_bytes = most[1];
    cluster_.exchange_bytes = most[2];
    cluster_.communicator_bytes = most[3];
  }

  const cli::Calibrate& options_;
  const Subject& subject_;
  comm::Ranks all_;
  const DeviceWork& device_;
  int threads_;
  plan::Cluster cluster_;  // its memory is that of this rank until measure_memory
  std::optional<Link> node_, network_;
  std::optional<RankWork> work_;
};

}  // namespace

void measure(const cli::Calibrate& options, const Subject& subject) {
  const auto on_first = [&](const auto& f) {
    comm::together(subject.all, "calibrate", [&] {
      if (subject.all.rank() == 0) f();
    });
  };
  FileDescriptor fifo;
  on_first([&] {
    if (!options.out.empty()) fifo = report::require_writable("--out", options.out);
  });
  const std::string file = Calibrator(options, subject).run();
  on_first([&] {
    if (options.out.empty()) return print_text(stdout, file);
    try {
      report::write_output("--out", options.out, file);
    } catch (const InputError&) {
      print_text(stdout, file);  // the measurements took long, so their result must not be lost
      throw;
    }
    print_text(stdout, file + options.out + "\n");
  });
}

}  // namespace fsdp::calibrate
