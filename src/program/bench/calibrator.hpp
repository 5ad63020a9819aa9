// SPDX-License-Identifier: Apache-2.0
/// @file
/// How `tessera calibrate` measures: all ranks do the same at the same time, and the slowest counts.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/comm/agreement.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/launch/cores.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/comm/together.hpp>
#include <tessera/fsdp/core/identity.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/trainer/run/rank_memory.hpp>

#include "../../trainer/report/output_file.hpp"
#include "calibrate.hpp"
#include "calibration.hpp"
#include "link_works.hpp"
#include "places.hpp"
#include "rank_works.hpp"
#include "rounds.hpp"

namespace fsdp::bench {

/// Measures on all ranks. Lives as long as one calibration.
template <class Comm>
class Calibrator {
  using Device = typename Comm::Device;

 public:
  Calibrator(const cli::Calibrate& options, Comm& communicator)
      : options_(options),
        all_(communicator),
        threads_(comm::rank_threads(options.launch.threads, communicator.size())),
        memory_(memory_of_host(communicator.size())),
        places_(places_of(comm::gather_texts(all_, machine_name(), "hosts"))) {
    train::use_threads(threads_);
    if (places_.per_node > 1 || places_.nodes == 1)
      node_.emplace(comm::split(communicator, [this](int rank) { return rank / places_.per_node; }));
    if (places_.nodes > 1)
      network_.emplace(comm::split(communicator, [this](int rank) { return rank % places_.per_node; }));
  }
  Calibrator(const Calibrator&) = delete;
  Calibrator& operator=(const Calibrator&) = delete;

  /// Returns the file.
  std::string run() {
    if constexpr (requires { Device::total_bytes(); }) memory_.exchange_bytes = measure_exchange();
    works_.emplace(all_, threads_);
    Rounds rounds;
    works_->add_to(rounds);
    std::optional<LinkCases> node, network;
    if (node_) node = node_->add_to(rounds);
    if (network_) network = network_->add_to(rounds);
    time(rounds);
    Calibration measured{.rounds = rounds,
                         .repeats = options_.repeats,
                         .device = Device::name,
                         .queues = Device::overlaps,
                         .places = places_,
                         .threads = threads_,
                         .matmul_bf16 = timed_matmuls(DType::bf16),
                         .matmul_fp32 = timed_matmuls(DType::f32),
                         .attention = timed(works_->attention),
                         .operations = timed(works_->operations),
                         .copies = timed(works_->copies),
                         .node = node,
                         .network = network,
                         .beside_collectives = {},
                         .memory = {}};
    if constexpr (Device::overlaps)
      if (all_.size() > 1) measured.beside_collectives = measure_beside(measured);
    if constexpr (requires { Device::total_bytes(); }) measure_device_memory();
    measured.memory = agreed_memory();
    return cluster_file(measured);
  }

 private:
  template <class Work>
  static Timed timed(const SizedWork<Work>& sized) {
    return {.at = sized.at, .amount = sized.amount()};
  }
  std::array<Timed, 3> timed_matmuls(DType dtype) const {
    return {timed(works_->matmuls(dtype, 0)), timed(works_->matmuls(dtype, 1)), timed(works_->matmuls(dtype, 2))};
  }
  void time(Rounds& rounds) {
    rounds.run(options_.repeats, [&] { all_.barrier({"calibrate"}); });
    all_.reduce(rounds.samples(), comm::Reduction::max, {"calibrate"});
  }
  LinkWorks<Comm>& nearest() { return node_ ? *node_ : *network_; }

  /// Returns the speeds of large matmuls while gathers are under way, by round; none if the gathers cannot be made to
  /// last as long as the matmuls.
  std::vector<double> measure_beside(const Calibration& measured) {
    constexpr int most_gathers = 4000;
    const LinkCases& links = measured.node ? *measured.node : *measured.network;
    const auto& matmuls = works_->matmuls(DType::bf16, 0);
    const double gather_seconds = measured.rounds.median_seconds(links.gather) / links.calls_of_many;
    int gathers =
        static_cast<int>(std::clamp(2 * measured.rounds.median_seconds(matmuls.at) / gather_seconds, 2.0, 1e3));
    for (; gathers <= most_gathers; gathers *= 2)
      if (std::vector<double> speeds = speeds_beside(gathers); !speeds.empty()) return speeds;
    return {};
  }
  /// The same with so many gathers; none if a rank's were over before its matmuls. Collective.
  std::vector<double> speeds_beside(int gathers) {
    auto& matmuls = *works_->matmuls(DType::bf16, 0).work;
    std::vector<comm::Pending<Comm>> under_way;
    std::int64_t covered = 1;
    const auto begin_round = [&] {
      for (auto& each : under_way) each.wait();
      under_way.clear();
      all_.barrier({"calibrate"});
    };
    Rounds rounds;
    const std::size_t alone = rounds.add([&] { matmuls.run(); }, begin_round);
    const std::size_t beside = rounds.add(
        [&] {
          matmuls.run();
          if (under_way.back().test()) covered = 0;
        },
        [&] {
          begin_round();
          for (int call = 0; call < gathers; ++call) under_way.push_back(nearest().start_gather(call));
        });
    rounds.run(options_.repeats);
    begin_round();
    all_.reduce(rounds.samples(), comm::Reduction::max, {"calibrate"});
    all_.reduce(std::span<std::int64_t>(&covered, 1), comm::Reduction::min, {"calibrate"});
    std::vector<double> speeds;
    for (std::size_t round = 0; covered != 0 && round < static_cast<std::size_t>(options_.repeats); ++round)
      speeds.push_back(std::min(1.0, rounds.seconds(alone, round) / rounds.seconds(beside, round)));
    return speeds;
  }

  /// What a rank has of its host, and what it takes already, before it measures anything.
  static MeasuredMemory memory_of_host(int ranks) {
    const std::int64_t resident = resident_bytes() / (train::starts_ranks<Comm> ? ranks : 1);
    return {.memory = train::host_memory_of_rank(ranks) + resident, .runtime_bytes = resident};
  }
  /// Returns the bytes that the first all_to_all takes of a device.
  std::int64_t measure_exchange() {
    const std::int64_t before = Device::free_bytes();
    nearest().exchange();
    return std::max<std::int64_t>(before - Device::free_bytes(), 0);
  }
  /// Frees all tensors of the device, but for no communicator, and looks what is taken besides.
  void measure_device_memory() {
    works_.reset();
    if (node_) node_->free_buffers();
    if (network_) network_->free_buffers();
    memory_.memory = Device::total_bytes();
    memory_.runtime_bytes = std::max<std::int64_t>(memory_.memory - Device::free_bytes() - memory_.exchange_bytes, 0);
  }
  /// The memory of the rank that has least, and what the rank takes that takes most. Collective.
  MeasuredMemory agreed_memory() {
    std::int64_t most[] = {-memory_.memory, memory_.runtime_bytes, memory_.exchange_bytes};
    all_.reduce(std::span<std::int64_t>(most), comm::Reduction::max, {"calibrate"});
    return {.memory = -most[0], .runtime_bytes = most[1], .exchange_bytes = most[2]};
  }

  const cli::Calibrate& options_;
  comm::Ranks all_;
  int threads_;
  MeasuredMemory memory_;  // of this rank
  Places places_;
  std::optional<LinkWorks<Comm>> node_, network_;
  std::optional<RankWorks<Device>> works_;
};

template <class Comm>
int calibrate(const cli::Calibrate& options) {
  return train::launch<Comm>(options.launch, [&options](Comm& communicator) {
    const comm::Ranks all(communicator);
    const auto on_first = [&](const auto& f) {
      comm::together(all, "calibrate", [&] {
        if (all.rank() == 0) f();
      });
    };
    FileDescriptor fifo;
    on_first([&] {
      if (!options.out.empty()) fifo = report::require_writable("--out", options.out);
    });
    const std::string file = Calibrator<Comm>(options, communicator).run();
    on_first([&] { write_cluster(options.out, file); });
  });
}

}  // namespace fsdp::bench
