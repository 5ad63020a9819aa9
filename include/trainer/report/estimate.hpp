// SPDX-License-Identifier: Apache-2.0
/// @file
/// The output of `tessera plan`: an estimate of a step as a table, as JSON and as a trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/fsdp/plan/step_estimate.hpp>
#include <tessera/trainer/report/trace.hpp>

namespace fsdp::report {

/// Describes the step that an estimate is for.
struct EstimateTitle {
  std::string cluster;               ///< the value of --cluster
  std::string stack;                 ///< "fsdp2 / nccl / bf16"
  std::string step;                  ///< "1 x 8192 tokens a micro-batch"
  std::string documents = {};        ///< the documents for which attention was counted; empty if sequences are whole
  std::int64_t document_length = 0;  ///< tokens of each document; 0: each sequence is one document
};

/// Returns the table. Its first line reports whether the step fits.
std::string estimate_text(const plan::Estimate& estimate, const EstimateTitle& title);

std::string estimate_line(const plan::Estimate& estimate);  ///< time, rate and memory in one line

/// Returns the same values and further ones as one JSON object, in bytes, seconds and FLOP/s.
std::string estimate_json(const plan::Estimate& estimate, const EstimateTitle& title);

/// Return the tasks and the memory of the simulated step as trace events of rank 0, named as in the trace of a run,
/// with a lane for each track; and the names of the lanes.
/// @{
std::vector<TraceEvent> trace_events(const plan::Estimate& estimate);
std::vector<std::string> trace_lanes();
/// @}

}  // namespace fsdp::report
