// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera_bench foreign use|unet|mlp`: a training loop that is not ours on `Sharded`. Its options, its ranks, and the
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
  std::int64_t repeats = 0;    ///< 0: the bench's own number
  std::int64_t units = 64;     ///< of `use`
  std::int64_t pictures = 12;  ///< of a step of `unet`
  std::int64_t layers = 8;     ///< of `mlp`
  std::int64_t width = 1024;   ///< inputs and outputs of a layer
  std::int64_t rows = 512;     ///< of the batch, on each rank
  std::int64_t ranks = 2;      ///< of `mlp`
  std::string matmul = "eigen";

  std::int64_t repeats_or(std::int64_t own) const { return repeats > 0 ? repeats : own; }
};

/// Each prints its lines. bench/README.md describes how each value is measured.
/// @{
void measure_use(const Options& options);
void measure_unet(const Options& options);
void measure_mlp(const Options& options);
/// @}

/// Runs f(communicator) on ranks of one thread. Each is bound to its own core, if the process may use as many.
void on_ranks(std::int64_t ranks, const std::function<void(Comm&)>& f);

/// Adds a case of well below a millisecond. Before each sample its thread rests and then runs it once untimed, so that
/// on a shared machine the sample fits into the time that the system gives a thread that has waited, with warm caches.
void add_short(Rounds& rounds, const std::function<void()>& body);

/// Runs the rounds with a barrier before every case. Of each sample, the slowest rank's is then every rank's.
void run_together(Comm& communicator, Rounds& rounds, std::int64_t count);

/// The gathers of weights and reductions of gradients of a step, in its order, each of one tensor of as many bytes,
/// evenly cut, and waited for before the next one begins. Each has its own shard; whole tensors take turns in two
/// slots.
class Exchange {
 public:
  /// Calls step(), which is collective, and records its collectives.
  Exchange(Comm& communicator, const std::function<void()>& step);

  void run();
  /// Bytes of all whole tensors, gathered or reduced.
  std::int64_t bytes() const { return bytes_; }

 private:
  struct Call {
    bool gathers = false;
    std::vector<std::int64_t> counts;  ///< elements of each rank's piece
    std::int64_t begin = 0;            ///< of the shard, in `shards_`
  };

  Comm& communicator_;
  std::vector<Call> calls_;
  std::vector<float> shards_, full_;
  std::int64_t bytes_ = 0;
};

}  // namespace fsdp::bench::foreign
