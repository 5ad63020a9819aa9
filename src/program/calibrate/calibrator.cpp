// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <range/v3/view/enumerate.hpp>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/identity.hpp>
#include <tessera/trainer/run/step_memory.hpp>

#include "../../trainer/report/files.hpp"
#include "calibration.hpp"
#include "subject.hpp"

namespace fsdp::calibrate {
namespace {

/// Returns the resident memory of this process in bytes.
std::int64_t resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  pages >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

/// Returns the placement of ranks on these hosts, which are listed by rank. Throws InputError if plans do not support
/// the placement.
Places places_of(std::span<const std::string> hosts) {
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
  return {.nodes = static_cast<int>(nodes.size()), .per_node = nodes[0].second};
}

/// Runs the measurements on all ranks. Lives as long as one calibration.
class Calibrator {
 public:
  Calibrator(const cli::Calibrate& options, const Subject& subject)
      : options_(options),
        all_(subject.all),
        device_(subject.device),
        threads_(comm::rank_threads(options.launch.threads, all_.size())) {
    const std::int64_t resident = resident_bytes() / (subject.shares_process ? all_.size() : 1);
    memory_ = {.memory = train::host_memory_of_rank(all_.size()) + resident, .runtime_bytes = resident};
    places_ = places_of(comm::gather_texts(all_, machine_name(), "hosts"));
    train::use_threads(threads_);
    const int per_node = places_.per_node;
    if (per_node > 1 || places_.nodes == 1) node_ = subject.link([&](int rank) { return rank / per_node; });
    if (places_.nodes > 1) network_ = subject.link([&](int rank) { return rank % per_node; });
  }
  Calibrator(const Calibrator&) = delete;
  Calibrator& operator=(const Calibrator&) = delete;

  /// Runs all measurements and returns the content of the cluster file.
  std::string run() {
    if (device_.free_bytes != nullptr) memory_.exchange_bytes = measure_exchange();
    work_.emplace(all_, device_, threads_);
    Rounds rounds;
    work_->add_to(rounds);
    const std::optional<LinkCases> node = added(rounds, node_), network = added(rounds, network_);
    rounds.run(options_.repeats, [&] { all_.barrier({"calibrate"}); });
    all_.reduce(rounds.samples(), comm::Reduction::max, {"calibrate"});
    const auto timed = [](const Work& work) { return Timed{.at = work.at, .amount = work.amount()}; };
    const auto timed_by_size = [&](const std::vector<Work>& list) {
      return std::array<Timed, 3>{timed(list[0]), timed(list[1]), timed(list[2])};
    };
    Calibration measured{.rounds = rounds,
                         .repeats = options_.repeats,
                         .device = device_.device,
                         .queues = device_.overlaps,
                         .places = places_,
                         .threads = threads_,
                         .matmul_bf16 = timed_by_size(work_->bf16),
                         .matmul_fp32 = timed_by_size(work_->fp32),
                         .attention = timed(work_->attention),
                         .operations = timed(work_->operations),
                         .copies = timed(work_->copies),
                         .node = node,
                         .network = network};
    if (device_.overlaps && all_.size() > 1) measured.beside_collectives = measure_beside(measured);
    if (device_.free_bytes != nullptr) measure_device_memory();
    measured.memory = agreed_memory();
    return cluster_file(measured);
  }

 private:
  static std::optional<LinkCases> added(Rounds& rounds, const std::optional<Link>& link) {
    if (!link) return std::nullopt;
    return LinkCases{.ranks = link->ranks,
                     .few = rounds.add(link->few),
                     .gather = rounds.add(link->gather),
                     .scatter = rounds.add(link->scatter),
                     .calls_of_few = link->calls_of_few,
                     .calls_of_many = link->calls_of_many,
                     .bytes = link->bytes};
  }
  const Link& nearest() const { return node_ ? *node_ : *network_; }

  /// Returns the relative speeds of large matmuls while gathers are in progress, by round; empty if gathers cannot be
  /// made to last as long as the matmuls.
  std::vector<double> measure_beside(const Calibration& measured) {
    constexpr int most_gathers = 4000;
    const LinkCases& links = measured.node ? *measured.node : *measured.network;
    const double gather_seconds = measured.rounds.median_seconds(links.gather) / links.calls_of_many;
    const double matmul_seconds = measured.rounds.median_seconds(work_->bf16[0].at);
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

  /// Returns the bytes of device memory that the first all_to_all allocates.
  std::int64_t measure_exchange() {
    const std::int64_t before = device_.free_bytes();
    nearest().exchange();
    return std::max<std::int64_t>(before - device_.free_bytes(), 0);
  }
  /// Frees all tensors on the device, but no communicator, and measures the bytes that are still in use.
  void measure_device_memory() {
    work_.reset();
    for (const std::optional<Link>* link : {&node_, &network_})
      if (*link) (*link)->free_buffers();
    memory_.memory = device_.total_bytes();
    memory_.runtime_bytes = std::max<std::int64_t>(memory_.memory - device_.free_bytes() - memory_.exchange_bytes, 0);
  }
  /// Returns the least device memory of all ranks, and the most runtime memory. Collective.
  MeasuredMemory agreed_memory() {
    std::int64_t most[] = {-memory_.memory, memory_.runtime_bytes, memory_.exchange_bytes};
    all_.reduce(std::span<std::int64_t>(most), comm::Reduction::max, {"calibrate"});
    return {.memory = -most[0], .runtime_bytes = most[1], .exchange_bytes = most[2]};
  }

  const cli::Calibrate& options_;
  comm::Ranks all_;
  const DeviceWork& device_;
  int threads_;
  MeasuredMemory memory_;  // memory of this rank
  Places places_;
  std::optional<Link> node_, network_;
  std::optional<RankWork> work_;
};

/// Writes the file and prints its name. Prints the file if `path` is empty; also if it cannot be written, which throws
/// InputError.
void write_cluster(const std::string& path, const std::string& text) {
  if (path.empty()) return print_text(stdout, text);
  try {
    report::write_output("--out", path, text);
  } catch (const InputError&) {
    print_text(stdout, text);  // the measurements took long, so their result must not be lost
    throw;
  }
  print_text(stdout, text + path + "\n");
}

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
  on_first([&] { write_cluster(options.out, file); });
}

}  // namespace fsdp::calibrate
