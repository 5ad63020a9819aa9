// SPDX-License-Identifier: Apache-2.0
/// @file
/// Advice for a run that does not fit into memory: what it would take with other flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/offload_advice.hpp>
#include <tessera/trainer/run/rank_memory.hpp>
#include <tessera/trainer/run/step_plan.hpp>

namespace fsdp::train {

/// Returns "; the whole run takes ... of each rank, and would take ... with --recompute, ...", by dry runs of the same
/// stack. Names only alternatives that take less. `tiling`: the run's tiling; nullptr if it is fixed at compile time.
/// `pieces`: as for check_batch. `memory`: bytes of the rank's device, for which the least share of inputs in host
/// memory is found; nothing: both memories are one, and no share is offered. `offloads_optimizer`: see flags_of.
/// `bytes`: makes a dry run with other options, tiling (nullptr: the run's own) and number of ranks.
std::string memory_advice(
    const TrainOptions& options, const tiling::RunTimeTiling* tiling, int ranks, int pieces,
    std::optional<std::int64_t> memory, bool offloads_optimizer,
    FunctionRef<TakenBytes(const TrainOptions& options, const tiling::RunTimeTiling* tiling, int ranks)> bytes);

/// What a rank's step needs of its memory, as plan::needed_bytes counts it.
struct NeededMemory {
  std::int64_t bytes = 0;
  std::int64_t runtime = 0;  ///< of them, those that the process takes besides tensors
};

/// The line of --dry-run on whether a rank's `memory` holds a step. `advice`: memory_advice for one that it does not
/// hold.
std::string memory_line(std::int64_t memory, const NeededMemory& needed, const std::string& advice);
/// The error of --dry-run for a step that `memory` does not hold.
std::string does_not_fit(std::int64_t memory, std::int64_t needed);

/// Throws InputError unless `memory` bytes of host memory hold what `share` of the block inputs takes beside the rest;
/// the error names the largest share that would do. `host`: the bytes with a share.
void require_host_memory(double share, std::int64_t memory, FunctionRef<std::int64_t(double share)> host);

template <class Model, class Optimizer>
std::string memory_advice(const TrainOptions& options, const typename Model::Stack::Sharding& sharding,
                          const typename Model::Stack::Tiling& tiling, const Optimizer& optimizer, int ranks,
                          std::optional<std::int64_t> memory) {
  constexpr bool chosen = std::is_same_v<typename Model::Stack::Tiling, tiling::RunTimeTiling>;
  const auto bytes = [&](const TrainOptions& other, const tiling::RunTimeTiling* other_tiling, int other_ranks) {
    typename Model::Stack::Tiling cut = tiling;
    if constexpr (chosen)
      if (other_tiling != nullptr) cut = *other_tiling;
    return taken_by(plan::dry_run(model_of<Model>(other), sharding, cut,
                                  plan_request(other, other_ranks, sharding, optimizer), optimizer),
                    !memory);
  };
  const tiling::RunTimeTiling* own = nullptr;
  if constexpr (chosen) own = &tiling;
  return memory_advice(options, own, ranks, sharding::facts_of(sharding).pieces, memory,
                       offloads_optimizer_of<typename Model::Stack::Sharding>, bytes);
}

/// Throws the same InputError on all ranks if some rank's machine has too little memory for inputs in host memory; the
/// error names the share that would do. Where both memories are one (Device::host_memory) inputs take as much either
/// way, and nothing is refused.
template <class Model, class Comm, class Optimizer>
void require_host_memory(Comm& communicator, const TrainOptions& options,
                         const typename Model::Stack::Sharding& sharding, const typename Model::Stack::Tiling& tiling,
                         const Optimizer& optimizer) {
  if (Comm::Device::host_memory || options.units.offload_inputs == 0) return;
  const int ranks = communicator.size();
  const std::int64_t memory = least_memory(communicator, host_memory_of_rank(ranks), "host memory");
  require_host_memory(options.units.offload_inputs, memory, [&](double share) {
    TrainOptions other = options;
    other.units.offload_inputs = share;
    return plan::dry_run(model_of<Model>(other), sharding, tiling, plan_request(other, ranks, sharding, optimizer),
                         optimizer)
        .offloaded_bytes;
  });
}

}  // namespace fsdp::train
