// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a calibration measured, as a cluster's file.
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <map>
#include <sstream>
#include <type_traits>

#include <tessera/fsdp/core/error.hpp>

#include "../../fsdp/checkpoint/posix.hpp"
#include "calibrate.hpp"

namespace fsdp::bench {
namespace {

/// The middle of a figure's samples, and how far they lie apart.
struct Figure {
  double value, least, most;
};

/// "1.95e+11 to 2.03e+11 in 9 repeats".
std::string spread_text(const Figure& figure, std::int64_t repeats) {
  std::ostringstream text;
  text << std::setprecision(3) << figure.least << " to " << figure.most << " in " << repeats << " repeats";
  return text.str();
}

/// The figures of a calibration, and what is said of each in the file.
class Figures {
 public:
  explicit Figures(const Calibration& measured) : of_(measured) {
    set_rates();
    set_links();
    set_memory();
  }

  std::string file() const {
    std::ostringstream text;
    text << "# A cluster's file for tessera plan, measured by tessera calibrate: " << of_.ranks << " x " << of_.threads
         << " threads\n"
         << std::setprecision(4);
    plan::Cluster::visit(cluster_, [&]<class T>(const char* name, const T& value, const char* help) {
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
  double seconds(Measured which, std::size_t round) const {
    return of_.rounds.seconds(static_cast<std::size_t>(which), round);
  }
  template <class F>
  Figure figure(const F& value_in_round) const {
    std::vector<double> values;
    for (std::int64_t round = 0; round < of_.repeats; ++round)
      values.push_back(value_in_round(static_cast<std::size_t>(round)));
    const auto [least, most] = std::ranges::minmax(values);
    return {.value = median(values), .least = least, .most = most};
  }
  double set(double& value, const char* name, const Figure& figure) {
    value = figure.value;
    notes_[name] = spread_text(figure, of_.repeats);
    return figure.most;
  }
  Figure rate(Measured which, double work) const {
    return figure([&](std::size_t round) { return work / seconds(which, round); });
  }

  void set_rates() {
    const double bf16_most =
        set(cluster_.matmul_bf16, "matmul_bf16", rate(Measured::matmul_bf16, of_.works.matmul_flops()));
    const double fp32_most =
        set(cluster_.matmul_fp32, "matmul_fp32", rate(Measured::matmul_fp32, of_.works.matmul_flops()));
    const double attention_most =
        set(cluster_.attention, "attention", rate(Measured::attention, of_.works.attention_flops()));
    cluster_.peak_bf16 = std::max(bf16_most, attention_most);
    cluster_.peak_fp32 = fp32_most;
    notes_["peak_bf16"] = notes_["peak_fp32"] = "the best sample; a data sheet says more";
    set(cluster_.memory_bandwidth, "memory_bandwidth", rate(Measured::operations, of_.works.operation_bytes()));
    set(cluster_.host_bandwidth, "host_bandwidth", rate(Measured::copies, of_.works.copied_bytes()));
  }
  /// A gather of few bytes is all latency, half of it that of starting; of many, what is left over its time. A step
  /// gathers about as much as it reduces.
  void set_links() {
    const double hops = std::max(of_.ranks - 1, 1);
    const auto start = [&](std::size_t round) { return seconds(Measured::few_bytes, round) / of_.calls_of_few_bytes; };
    set(cluster_.collective_latency, "collective_latency", figure([&](std::size_t round) { return start(round) / 2; }));
    set(cluster_.node_latency, "node_latency", figure([&](std::size_t round) { return start(round) / 2 / hops; }));
    const double moved = of_.gathered_bytes * hops / of_.ranks;
    set(cluster_.node_bandwidth, "node_bandwidth", figure([&](std::size_t round) {
          const double both =
              (seconds(Measured::gather, round) + seconds(Measured::scatter, round)) / of_.calls_of_many;
          return moved / std::max(both / 2 - start(round), both / 4);
        }));
    cluster_.network_latency = cluster_.node_latency;
    cluster_.network_bandwidth = cluster_.node_bandwidth;
    notes_["network_latency"] = notes_["network_bandwidth"] = "not measured: one node";
  }
  void set_memory() {
    cluster_.device = "cpu";
    cluster_.ranks = cluster_.ranks_per_node = of_.ranks;
    cluster_.threads = of_.threads;
    cluster_.memory = of_.memory;
    cluster_.runtime_bytes = of_.runtime_bytes;
    struct sysinfo machine {};
    cluster_.host_memory = ::sysinfo(&machine) == 0 ? static_cast<std::int64_t>(machine.totalram) * machine.mem_unit
                                                    : of_.memory * of_.ranks;
    notes_["memory"] = "nine tenths of what was free";
    notes_["runtime_bytes"] = "resident before any tensor";
  }

  const Calibration& of_;
  plan::Cluster cluster_;
  std::map<std::string, std::string> notes_;  // by key
};

}  // namespace

std::string cluster_file(const Calibration& measured) {
  const Figures figures(measured);
  figures.cluster().validate();
  return figures.file();
}

void require_writable_folder(const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  require<InputError>(::access(folder.c_str(), W_OK) == 0, "--out ", path, ": cannot be written: ", folder.string(),
                      " is no folder that this user may write to");
}

void write_cluster(const std::string& path, const std::string& text) {
  if (path.empty()) return print_text(stdout, text);
  const std::filesystem::path whole = std::filesystem::absolute(path);
  checkpoint::PartFile file(whole.string() + ".part", whole);
  file.write(text.data(), text.size(), 0);
  file.finish();
  print_text(stdout, text + path + "\n");
}

}  // namespace fsdp::bench
