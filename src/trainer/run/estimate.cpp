// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/estimate.hpp>

#include <cmath>
#include <cstdio>
#include <utility>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/report/report.hpp>
#include <tessera/trainer/report/trace.hpp>
#include <tessera/trainer/run/output_files.hpp>

namespace fsdp::train {

void check_plan_flags(const FlagSet& flags, const TrainOptions& options) {
  require<InputError>(!flags.is_given("memory"), "--memory is for runs; a plan's memory is the cluster's (--cluster)");
  for (const char* const other : {"dry-run", "print-schedule"})
    require<InputError>(!flags.is_given(other), "--", other, " is for train; leave it out of plan, or call tessera ",
                        "train --", other);
  if (options.trace) require_apart(options, flags.files());
}

std::string counted_documents(const TrainOptions& options) {
  const std::int64_t length = options.document_length;
  const bool documents = options.data_format == data::TokenFormat::chat || options.document_separator;
  require<InputError>(documents || length == 0, "--document-length ", length, " is for data with documents, and these ",
                      "flags have none; give --data-format chat or --document-separator, or leave it out");
  require<InputError>(length <= options.seq_len, "--document-length ", length, " is more than the ", options.seq_len,
                      " tokens of a sequence (--seq-len); give at most as many");
  if (!documents) return {};
  return length > 0 ? message("attention of documents of ", length, length == 1 ? " token" : " tokens")
                    : std::string("attention of whole windows; documents take less (--document-length)");
}

bool prints_plans() { return comm::launched_job().rank == 0; }

report::EstimateTitle title_of(const EstimatedStep& step, const std::string& cluster) {
  const StepSize& size = step.request.size();
  const int sharing = size.ranks_per_sequence;
  return {.cluster = cluster,
          .stack = step.stack,
          .step = message(sharing == 1 ? "" : message(sharing, " share each sequence, "), size.micro_batches,
                          size.micro_batches == 1 ? " micro-batch of " : " micro-batches of ", size.sequences, " x ",
                          size.sequence_length, " tokens"),
          .documents = step.documents,
          .document_length = std::llround(step.request.document_length)};
}

int print_estimate(const TrainOptions& options, const PlanOptions& plan, const EstimatedStep& step) {
  const plan::Estimate& estimate = step.estimate;
  const int status = estimate.fits() ? comm::ExitStatus::done : comm::ExitStatus::bad_input;
  if (!prints_plans()) return status;
  report::Trace trace(options.trace ? *options.trace : "", report::trace_lanes());
  for (report::TraceEvent& event : report::trace_events(step.estimate)) trace.add(std::move(event));
  trace.write();
  const report::EstimateTitle title = title_of(step, *options.cluster);
  print_text(stdout,
             plan.json ? report::estimate_json(estimate, title) + "\n" : report::estimate_text(estimate, title));
  if (status == comm::ExitStatus::done) return status;
  const bool device = estimate.device.left() < 0;
  const plan::Need& need = device ? estimate.device : estimate.host;
  print_sentence(message("plan: this step does not fit: ", device ? "a rank needs " : "a node's host memory needs ",
                         report::bytes_text(need.needed), " and has ", report::bytes_text(need.available), ", ",
                         report::bytes_text(-need.left()), " too little; --fit searches for flags that fit"));
  return status;
}

}  // namespace fsdp::train
