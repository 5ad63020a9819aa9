// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera calibrate`: the figures of a plan::Cluster, measured while all ranks of this machine do the same.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/launch/cores.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/comm/together.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/trainer/run/rank_memory.hpp>

#include "../cli/calibrate_options.hpp"
#include "collectives.hpp"
#include "rounds.hpp"

namespace fsdp::bench {

/// What a rank computes and copies alone: square matmuls in both types, causal attention in bf16, forward and backward,
/// the elementwise operations of a block in bf16, and copies.
class RankWorks {
 public:
  explicit RankWorks(int threads);
  ~RankWorks();
  RankWorks(const RankWorks&) = delete;

  /// Adds a case for each work, in this order.
  void add_to(Rounds& rounds);

  double matmul_flops() const;     ///< of each type's case
  double attention_flops() const;  ///< as the operations' costs count them, and so do plans
  double operation_bytes() const;  ///< the same
  double copied_bytes() const;

 private:
  class Operations;
  std::unique_ptr<Operations> operations_;
};

/// Cases of a calibration, in the order in which they are added.
enum class Measured : std::uint8_t {
  matmul_bf16,
  matmul_fp32,
  attention,
  operations,
  copies,
  few_bytes,
  gather,
  scatter
};

/// All that a rank has measured, with the seconds of the slowest rank.
struct Calibration {
  const Rounds& rounds;
  std::int64_t repeats;
  const RankWorks& works;
  int ranks, threads;
  int calls_of_few_bytes, calls_of_many;
  double gathered_bytes;       ///< of one call of gather and of scatter: a whole buffer
  std::int64_t memory;         ///< of a rank
  std::int64_t runtime_bytes;  ///< that it took before it had a tensor
};

/// Returns the cluster as a TOML file that `--cluster` reads, with the spread of each figure behind it.
std::string cluster_file(const Calibration& measured);
/// Throws InputError if no file can be written there; empty: stdout.
void require_writable_folder(const std::string& path);
/// Prints it, or writes it to a file under a temporary name first. Throws InputError if that cannot be written.
void write_cluster(const std::string& path, const std::string& text);

/// Bytes of this process that are in memory, of which each of the ranks in it has a part.
std::int64_t resident_bytes();

/// Measures on all ranks; rank 0 writes the file. Returns the exit status. Throws InputError for ranks on several
/// machines.
template <class Comm>
int calibrate(const cli::Calibrate& options) {
  require_writable_folder(options.out);
  return train::launch<Comm>(options.launch, [&options](Comm& communicator) {
    constexpr std::int64_t few = 4096, many = std::int64_t{16} << 20;
    const int ranks = communicator.size();
    const comm::Ranks all(communicator);
    const int threads = comm::rank_threads(options.launch.threads, ranks);
    require<InputError>(comm::ranks_on_this_machine(ranks) == ranks, "calibrate: measures one machine, and these ",
                        ranks, " ranks are on several; start it on one of them, and write network_latency and ",
                        "network_bandwidth into its file (tessera bench comm measures both)");
    train::use_threads(threads);
    const std::int64_t resident = resident_bytes() / (train::starts_ranks<Comm> ? ranks : 1);
    const auto memory = [&](std::int64_t size) { return comm::shared_memory(communicator, size); };
    CommWay<Comm> few_bytes(std::nullopt, communicator, few, memory),
        many_bytes(std::nullopt, communicator, many, memory);
    RankWorks works(threads);
    Rounds rounds;
    works.add_to(rounds);
    const auto add = [&](const CommWay<Comm>& way, auto collective) {
      rounds.add([&, collective] {
        for (int call = 0; call < way.buffers.calls(); ++call) collective(way.buffers.apart(call));
      });
    };
    const auto gather = [&](const auto& segments) { comm::all_gather(communicator, segments).wait(); };
    const auto scatter = [&](const auto& segments) {
      comm::reduce_scatter<float>(communicator, segments, Write::overwrite).wait();
    };
    add(few_bytes, gather);
    add(many_bytes, gather);
    add(many_bytes, scatter);
    rounds.run(options.repeats, [&] { all.barrier({"calibrate"}); });
    all.reduce(rounds.samples(), comm::Reduction::max, {"calibrate"});
    comm::together(all, "calibrate", [&] {
      if (all.rank() != 0) return;
      write_cluster(options.out, cluster_file({.rounds = rounds,
                                               .repeats = options.repeats,
                                               .works = works,
                                               .ranks = ranks,
                                               .threads = threads,
                                               .calls_of_few_bytes = few_bytes.buffers.calls(),
                                               .calls_of_many = many_bytes.buffers.calls(),
                                               .gathered_bytes = static_cast<double>(many_bytes.buffers.bytes()),
                                               .memory = train::host_memory_of_rank(ranks),
                                               .runtime_bytes = resident}));
    });
  });
}

}  // namespace fsdp::bench
