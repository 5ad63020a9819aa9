// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sub-command plan on one stack: what a training step would take on a cluster.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/plan/estimate.hpp>
#include <tessera/trainer/flags/optimizer_choice.hpp>
#include <tessera/trainer/report/estimate.hpp>
#include <tessera/trainer/run/plan_options.hpp>
#include <tessera/trainer/run/planned_step.hpp>

namespace fsdp::train {

/// Throws InputError for flags of `train` that say what a plan takes from the cluster, or ask for something else, and
/// for a trace that would replace a file that is read.
void check_plan_flags(const FlagSet& flags, const TrainOptions& options);
/// Returns what attention is counted of, where the options are of data with documents; else nothing. Throws InputError
/// for a --document-length that such data cannot have.
std::string counted_documents(const TrainOptions& options);
/// Whether this process prints what is planned: of several that a launcher started one does.
bool tells_of_plans();

/// A stack's step on a cluster.
struct EstimatedStep {
  plan::Estimate estimate;
  plan::Request request;
  std::string stack;           ///< "fsdp2 / nccl / bf16"
  std::string documents = {};  ///< what attention was counted of, if the data have documents; else empty
};

/// Returns what an estimate is of: the cluster, the stack and the step's size.
report::EstimateTitle title_of(const EstimatedStep& step, const std::string& cluster);
/// Prints the estimate and, with --trace, writes the virtual step. Returns the exit status: ExitStatus::bad_input,
/// after a sentence on stderr, if the step does not fit.
[[nodiscard]] int print_estimate(const TrainOptions& options, const PlanOptions& plan, const EstimatedStep& step);

/// The communicator of a step that nobody runs.
struct PlannedComm {
  std::string name;                                        ///< as --comm has it: "nccl"
  std::int64_t (*scratch_bytes_for)(int ranks) = nullptr;  ///< bytes that a rank's holds; null: none
};

/// `tessera plan` on one stack of a device without storage: checks what a run on these ranks would check, and starts
/// none. `options`: its ranks are the cluster's. `tells`: prints what it chooses where flags leave the choice to it.
template <class Model, class Optimizer>
EstimatedStep estimated_step(TrainOptions options, const plan::Cluster& cluster, const PlannedComm& comm,
                             const FlagSet& flags, const ShardingOf<Model>& asked, const TilingOf<Model>& tiling,
                             const Optimizer& optimizer, bool tells) {
  using Stack = typename Model::Stack;
  static_assert(Stack::Device::counts_only, "fsdp: a plan allocates nothing; take a stack over comm::Simulated");
  check_plan_flags(flags, options);
  validate_constants(optimizer);
  options.dry_run = true;  // no data, and any number of ranks
  if (options.launch.threads == 0) options.launch.threads = cluster.threads;
  const int ranks = static_cast<int>(cluster.ranks);
  std::string documents = counted_documents(options);
  const auto memory = [&] { return cluster.memory - cluster.runtime(options.sequence.ranks > 1); };
  auto [model, request, sharding, cut] = planned_step<Model>(options, flags, ranks, asked, tiling, optimizer, memory,
                                                             tells && tells_of_plans(), true, comm.scratch_bytes_for);
  request.document_length = static_cast<double>(options.document_length);
  plan::Estimate estimate = plan::estimate(model, sharding, cut, request, cluster, optimizer);
  return {.estimate = std::move(estimate),
          .request = request,
          .stack = message(policy_text(sharding), " / ", comm.name, " / ", policy_text<typename Stack::Precision>()),
          .documents = std::move(documents)};
}

}  // namespace fsdp::train
