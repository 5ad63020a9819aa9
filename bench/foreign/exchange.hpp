// SPDX-License-Identifier: Apache-2.0
/// @file
/// The floor of a step's exchange: its all-gathers and reduce-scatters alone.
#pragma once

#include <cstdint>
#include <vector>

#include "ranks.hpp"

namespace fsdp::bench {

/// The gathers of weights and reductions of gradients that a step makes, in its order, each of one tensor of as many
/// bytes, evenly cut, and waited for before the next one begins. Each has a shard of its own; whole tensors take turns
/// in two slots.
class Exchange {
 public:
  /// Calls step(), which is collective, and records what it does.
  template <class Step>
  Exchange(Comm& communicator, Step step) : communicator_(communicator) {
    comm::Monitor& monitor = communicator.monitor();
    const std::size_t first = monitor.records.size();
    monitor.options.record = true;
    step();
    monitor.options.record = false;
    allocate({monitor.records.begin() + static_cast<std::ptrdiff_t>(first), monitor.records.end()});
  }

  void run();
  /// Bytes of all whole tensors, gathered or reduced.
  std::int64_t bytes() const { return bytes_; }

 private:
  struct Call {
    bool gathers = false;
    std::vector<std::int64_t> counts;  ///< elements of each rank's piece
    std::int64_t begin = 0;            ///< of the shard, in `shards_`
  };
  void allocate(const std::vector<comm::Record>& records);

  Comm& communicator_;
  std::vector<Call> calls_;
  std::vector<float> shards_, full_;
  std::int64_t bytes_ = 0;
};

}  // namespace fsdp::bench
