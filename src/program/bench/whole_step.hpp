// SPDX-License-Identifier: Apache-2.0
/// @file
/// What `tessera bench step --sequence` is compared with: a step of the same sequences, each whole on one rank.
#pragma once

#include <cstdint>
#include <optional>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>

#include "../cli/bench_options.hpp"

namespace fsdp::bench {

/// The first rank of each group that shares a sequence computes it with the threads of all; the others wait. `RunT` is
/// StepRun of a model.
template <class RunT>
class WholeStep {
 public:
  using Comm = typename RunT::Comm;
  using Tiling = typename RunT::Stack::Tiling;

  /// `group`: this rank's place. `threads`: of each rank of the group. Collective.
  WholeStep(Comm& communicator, BenchOptions options, const Tiling& tiling, const SequenceGroup& group, int threads)
      : all_(communicator), communicator_(communicator.split(group.member)) {
    options.sequence = {};
    options.launch.threads = std::int64_t{group.size} * threads;
    if (group.member != 0) return;
    try {
      run_.emplace(communicator_, options, tiling);
    } catch (const InputError& error) {
      throw InputError(message("bench step: --sequence is compared with whole sequences on ", group.count, " of the ",
                               group.count * group.size, " ranks; ", error.what()));
    }
  }

  /// Returns when all groups have their step. --deadline is for what ranks compute between collectives; here they wait
  /// for a whole step.
  void step() {
    constexpr double longest_seconds = 3600;
    train::with_disk_deadline(all_, longest_seconds, "bench step: whole sequences", [&] {
      if (run_) run_->step();
      comm::barrier(all_, {"bench"});
    });
  }
  /// Of the first rank of a group; 0 on others.
  /// @{
  std::int64_t activation_bytes() const { return run_ ? run_->activation_bytes() : 0; }
  double loss() const { return run_ ? run_->loss() : 0; }
  /// @}

 private:
  Comm& all_;
  Comm communicator_;
  std::optional<RunT> run_;
};

}  // namespace fsdp::bench
