// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera plan` on one stack: the time and memory of a training step on a cluster.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/plan/step_estimate.hpp>
#include <tessera/trainer/flags/flag_set.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::train {

/// Throws InputError for flags of `train` whose values a plan takes from the cluster or that request another action,
/// and for a trace that would overwrite an input file.
void check_plan_flags(const FlagSet& flags, const TrainOptions& options);
/// Returns a description of the documents for which attention is counted, if the data have documents; else an empty
/// text. Throws InputError for a --document-length that such data cannot have.
std::string counted_documents(const TrainOptions& options);
/// Returns whether this process prints plans: of several processes that a launcher started, only one does.
bool prints_plans();

/// A stack's step on a cluster.
struct EstimatedStep {
  plan::Estimate estimate;
  plan::Request request;
  std::string stack;           ///< "fsdp2 / nccl / bf16"
  std::string documents = {};  ///< the documents for which attention was counted; empty if the data have none
};

/// Returns the title of an estimate: the cluster, the stack and the step's size.
report::EstimateTitle title_of(const EstimatedStep& step, const std::string& cluster);
/// Prints the estimate and, with --trace, writes the trace of the simulated step. Returns the exit status:
/// ExitStatus::bad_input, after a sentence on stderr, if the step does not fit.
[[nodiscard]] int print_estimate(const TrainOptions& options, const PlanOptions& plan, const EstimatedStep& step);

/// The communicator of a step that is only planned.
struct PlannedComm {
  std::string name;                                        ///< name as in --comm: "nccl"
  std::int64_t (*scratch_bytes_for)(int ranks) = nullptr;  ///< scratch bytes of a rank's communicator; null: none
};

}  // namespace fsdp::train
