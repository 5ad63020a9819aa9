// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/estimate.hpp>

#include <cstdio>
#include <utility>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/report/estimate.hpp>
#include <tessera/trainer/report/trace.hpp>
#include <tessera/trainer/run/output_files.hpp>

namespace fsdp::train {

void check_plan_flags(const FlagSet& flags, const TrainOptions& options) {
  require<InputError>(!flags.is_given("memory"), "--memory is for runs; a plan's memory is the cluster's (--cluster)");
  for (const char* const other : {"dry-run", "print-schedule"})
    require<InputError>(!flags.is_given(other), "--", other, " is for train; leave it out of plan, or call tessera ",
                        "train --", other);
  if (options.trace) require_apart(options, files_of(flags));
}

bool tells_of_plans() { return comm::launched_job().rank == 0; }

report::EstimateTitle title_of(const EstimatedStep& step, const std::string& cluster) {
  const RunShape& shape = step.request.shape;
  const int sharing = shape.ranks_per_sequence;
  return {.cluster = cluster,
          .stack = step.stack,
          .step = message(sharing == 1 ? "" : message(sharing, " share each sequence, "), shape.micro_batches,
                          shape.micro_batches == 1 ? " micro-batch of " : " micro-batches of ", step.request.sequences,
                          " x ", shape.sequence_length, " tokens")};
}

void print_estimate(const TrainOptions& options, const PlanOptions& plan, const EstimatedStep& step) {
  if (!tells_of_plans()) return;
  report::Trace trace(options.trace ? *options.trace : "", report::trace_lanes());
  for (report::TraceEvent& event : report::trace_events(step.estimate)) trace.add(std::move(event));
  trace.write();
  const report::EstimateTitle title = title_of(step, *options.cluster);
  print_text(stdout, plan.json ? report::estimate_json(step.estimate, title) + "\n"
                               : report::estimate_text(step.estimate, title));
}

}  // namespace fsdp::train
