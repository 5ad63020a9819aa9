// SPDX-License-Identifier: Apache-2.0
/// @file
/// Texts and tables that the program prints; and the output of `tessera plan`: an estimate of a step as a table, as
/// JSON and as a trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/plan/step_estimate.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/slots.hpp>
#include <tessera/trainer/report/metrics.hpp>
#include <tessera/trainer/report/trace.hpp>

namespace fsdp::report {

/// Returns a description of the run for its start, in a few lines.
std::string start_text(const StartRecord& record, const std::string& data, std::int64_t training_windows,
                       std::int64_t held_out_windows, std::int64_t peak_bytes);

/// Returns a description of the rounds in which the pieces of a step are computed, and of the cost of an incomplete
/// last round. `sharing`: number of consecutive ranks that compute each piece together.
std::string rounds_text(std::int64_t pieces, std::int64_t ranks, std::int64_t sharing = 1);

/// Returns a description of the cost of a verification every `every` steps, for this number of pieces and ranks.
std::string verification_text(std::int64_t every, std::int64_t pieces, std::int64_t ranks);

/// Returns a description of the completed run: steps, tokens, time, memory, and a table of collectives if any.
std::string summary_text(const SummaryRecord& record);

/// Return numbers as text.
/// @{
std::string seconds_text(double seconds);            ///< "12.340 s", "1.234 ms"
std::string planned_seconds_text(double seconds);    ///< with three significant digits: "95.1 s", "8.31 ms"
std::string estimate_digits(double value);           ///< with three significant digits: "95.1", "11,000", "0.0831"
std::string bytes_text(std::int64_t bytes);          ///< "1.50 GiB", "12.00 MiB", "640 B"
std::string count_text(std::int64_t count);          ///< "8,123"
std::string decimal_text(double value, int places);  ///< with `places` digits after the decimal point: "0.25"
/// @}

/// Returns the dry run's table: bytes by kind, and their sum.
std::string memory_table(const device::BytesByKind& bytes, const std::string& title);

/// Returns a schedule with one task per line: "micro-batch 0  gather          block 1, slot 0".
std::string schedule_text(const sharding::Schedule& schedule, const sharding::Names& names);

/// Returns how long groups stay gathered under a budget, and the bytes that a step gathers; empty without a budget.
std::string residency_text(const sharding::Residency& residency);

std::string mean_loss_json(double loss, std::int64_t tokens);  ///< returns {"loss": ..., "tokens": ...}

/// Returns a task as a trace event, such as "forward 1", on the lane for compute or for communication.
TraceEvent trace_event(const sharding::Task& task, int rank, double begin_seconds, double seconds);

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
