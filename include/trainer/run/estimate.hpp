// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sub-command plan on one stack: what a training step would take on a cluster.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/plan/step_estimate.hpp>
#include <tessera/trainer/flags/flag_set.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/estimate.hpp>

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

}  // namespace fsdp::train
