// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/estimate.hpp>

#include <cstdio>
#include <utility>
#include <vector>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/report/estimate.hpp>
#include <tessera/trainer/report/trace.hpp>
#include <tessera/trainer/run/output_files.hpp>

namespace fsdp::train {

void check_plan_flags(const FlagSet& flags, const TrainOptions& options, const PlanOptions& plan) {
  require<InputError>(!flags.is_given("memory"), "--memory is for runs; a plan's memory is the cluster's (--cluster)");
  for (const char* const other : {"dry-run", "print-schedule"})
    require<InputError>(!flags.is_given(other), "--", other, " is for train; leave it out of plan, or call tessera ",
                        "train --", other);
  if (!options.trace) return;
  std::vector<ReadFile> read = files_of(flags);
  read.push_back({.flag = "--cluster", .path = plan.cluster});
  require_apart(options, read);
}

void print_estimate(const TrainOptions& options, const PlanOptions& plan, const plan::Estimate& estimate,
                    const plan::Request& request, const std::string& stack) {
  report::Trace trace(options.trace ? *options.trace : "", report::trace_lanes());
  for (report::TraceEvent& event : report::trace_events(estimate)) trace.add(std::move(event));
  trace.write();
  const int sharing = request.shape.ranks_per_sequence;
  const report::EstimateTitle title{
      .cluster = plan.cluster,
      .stack = stack,
      .step = message(sharing == 1 ? "" : message(sharing, " share each sequence, "), request.shape.micro_batches,
                      request.shape.micro_batches == 1 ? " micro-batch of " : " micro-batches of ", request.sequences,
                      " x ", request.shape.sequence_length, " tokens")};
  print_text(stdout,
             plan.json ? report::estimate_json(estimate, title) + "\n" : report::estimate_text(estimate, title));
}

}  // namespace fsdp::train
