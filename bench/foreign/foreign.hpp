// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera_bench foreign use|unet|mlp`: a user-defined training loop on `Sharded`. Its options, its ranks, and the
/// lower bound of a step's exchange.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sharded.hpp>

#include "../../src/program/calibrate/rounds.hpp"

namespace fsdp::bench::foreign {

using calibrate::median;
using calibrate::Rounds;
using Comm = comm::Threads<>;
using Shards = Sharded<Stack<FullyShard<>, Comm, Fp32>>;

struct Options {
  std::string what = {};
  std::int64_t repeats = 0;    ///< number of rounds; 0: the default of the bench
  std::int64_t units = 64;     ///< number of units of `use`
  std::int64_t pictures = 12;  ///< number of images in a step of `unet`
  std::int64_t layers = 8;     ///< number of layers of `mlp`
  std::int64_t width = 1024;   ///< inputs and outputs of a layer of `mlp`
  std::int64_t rows = 512;     ///< rows of the batch of `mlp` on each rank
  std::int64_t ranks = 2;      ///< number of ranks of `mlp`
  std::string matmul = "eigen";

  std::int64_t repeats_or(std::int64_t own) const { return repeats > 0 ? repeats : own; }
};

/// Each function prints its lines. bench/README.md describes how each value is measured.
/// @{
void measure_use(const Options& options);
void measure_unet(const Options& options);
void measure_mlp(const Options& options);
/// @}

/// Runs f(communicator) on ranks of one thread each. Each thread is bound to a separate core if the process may use
/// enough cores.
void on_ranks(std::int64_t ranks, const std::function<void(Comm&)>& f);

/// Adds a case that takes well below a millisecond. Before each sample its thread rests and then runs the case once
/// untimed. On a shared machine the sample then fits into the time slice that the system gives a thread that has
/// waited, with warm caches.
void add_short(Rounds& rounds, const std::function<void()>& body);

/// Runs the rounds with a barrier before every case. Afterwards, each sample is the time of the slowest rank, on all
/// ranks.
void run_together(Comm& communicator, Rounds& rounds, std::int64_t count);

/// The all-gathers of weights and reduce-scatters of gradients of a step, in the same order. Each has one tensor of the
/// same number of bytes, evenly sharded, and is waited for before the next one begins. Each has a separate shard;
/// unsharded tensors alternate between two slots.
class Exchange {
 public:
  /// Calls step(), which is collective, and records its collectives.
  Exchange(Comm& communicator, const std::function<void()>& step);

  void run();
  /// Total bytes of the unsharded tensors that are gathered or reduced.
  std::int64_t bytes() const { return bytes_; }

 private:
  struct Call {
    bool gathers = false;
    std::vector<std::int64_t> counts;  ///< number of elements in each rank's piece
    std::int64_t begin = 0;            ///< offset of the shard in `shards_`, in elements
  };

  Comm& communicator_;
  std::vector<Call> calls_;
  std::vector<float> shards_, full_;
  std::int64_t bytes_ = 0;
};

}  // namespace fsdp::bench::foreign
