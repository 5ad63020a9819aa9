// SPDX-License-Identifier: Apache-2.0
/// @file
/// How `tessera calibrate` measures: all ranks do the same at the same time, and the slowest counts.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
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

#include "calibrate.hpp"
#include "calibration.hpp"
#include "link_works.hpp"
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
        resident_(resident_bytes() / (train::starts_ranks<Comm> ? communicator.size() : 1)),
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
    memory_.exchange_bytes = measure_exchange();
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
                         .memory = {}};
    if constexpr (Device::overlaps)
      if (all_.size() > 1) measured.beside_collectives = measure_beside(measured);
    measured.memory = measure_memory();
    return cluster_file(measured);
  }

 private:
  template <class Work>
  static Timed timed(const SizedWork<Work>& sized) {
    return {.at = sized.at, .amount = sized.work->amount()};
  }
  std::array<Timed, 3> timed_matmuls(DType dtype) const {
    return {timed(works_->matmuls(dtype, 0)), timed(works_->matmuls(dtype, 1)), timed(works_->matmuls(dtype, 2))};
  }
  void time(Rounds& rounds) {
    rounds.run(options_.repeats, [&] { all_.barrier({"calibrate"}); });
    all_.reduce(rounds.samples(), comm::Reduction::max, {"calibrate"});
  }
  LinkWorks<Comm>& widest() { return node_ ? *node_ : *network_; }

  /// Returns the speeds of large matmuls beside gathers that last longer, by round.
  std::vector<double> measure_beside(const Calibration& measured) {
    const LinkCases& links = measured.node ? *measured.node : *measured.network;
    const auto& matmuls = works_->matmuls(DType::bf16, 0);
    const double gather_seconds = measured.rounds.median_seconds(links.gather) / links.calls_of_many;
    const int gathers = static_cast<int>(
        std::clamp(std::ceil(2 * measured.rounds.median_seconds(matmuls.at) / gather_seconds), 1.0, 1000.0));
    std::vector<comm::Pending<Comm>> under_way;
    const auto wait = [&] {
      for (auto& each : under_way) each.wait();
      under_way.clear();
    };
    Rounds rounds;
    const std::size_t alone = rounds.add([&] { matmuls.work->run(); }, wait);
    const std::size_t beside = rounds.add([&] {
      for (int call = 0; call < gathers; ++call) under_way.push_back(widest().start_gather(call));
      matmuls.work->run();
    });
    time(rounds);
    wait();
    std::vector<double> speeds;
    for (std::size_t round = 0; round < static_cast<std::size_t>(options_.repeats); ++round)
      speeds.push_back(std::min(1.0, rounds.seconds(alone, round) / rounds.seconds(beside, round)));
    return speeds;
  }

  /// Returns the bytes that the first all_to_all takes of a device, on the rank where it takes most.
  std::int64_t measure_exchange() {
    std::int64_t bytes = 0;
    if constexpr (requires { Device::free_bytes(); }) {
      const std::int64_t before = Device::free_bytes();
      widest().exchange();
      bytes = std::max<std::int64_t>(before - Device::free_bytes(), 0);
    }
    return most(bytes);
  }
  /// Frees all tensors, and looks what is taken besides.
  MeasuredMemory measure_memory() {
    MeasuredMemory found{.memory = train::host_memory_of_rank(all_.size()), .runtime_bytes = resident_};
    if constexpr (requires { Device::total_bytes(); }) {
      works_.reset();
      node_.reset();
      network_.reset();
      found.memory = Device::total_bytes();
      found.runtime_bytes = std::max<std::int64_t>(found.memory - Device::free_bytes() - memory_.exchange_bytes, 0);
    }
    found.memory = -most(-found.memory);
    found.runtime_bytes = most(found.runtime_bytes);
    found.exchange_bytes = memory_.exchange_bytes;
    return found;
  }
  std::int64_t most(std::int64_t bytes) {
    all_.reduce(std::span<std::int64_t>(&bytes, 1), comm::Reduction::max, {"calibrate"});
    return bytes;
  }

  const cli::Calibrate& options_;
  comm::Ranks all_;
  int threads_;
  std::int64_t resident_;
  Places places_;
  std::optional<LinkWorks<Comm>> node_, network_;
  std::optional<RankWorks<Device>> works_;
  MeasuredMemory memory_;
};

template <class Comm>
int calibrate(const cli::Calibrate& options) {
  require_writable_folder(options.out);
  return train::launch<Comm>(options.launch, [&options](Comm& communicator) {
    const std::string file = Calibrator<Comm>(options, communicator).run();
    const comm::Ranks all(communicator);
    comm::together(all, "calibrate", [&] {
      if (all.rank() == 0) write_cluster(options.out, file);
    });
  });
}

}  // namespace fsdp::bench
