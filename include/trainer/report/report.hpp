// SPDX-License-Identifier: Apache-2.0
/// @file
/// Texts and tables that the program prints.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/fsdp/device/memory.hpp>
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

/// Returns a description of the completed run: steps, tokens, time and memory, and a table of collectives if there were
/// any.
std::string summary_text(const SummaryRecord& record);

/// Returns "12.340 s", "1.234 ms".
std::string seconds_text(double seconds);

/// Returns an estimated value with three significant digits: "95.1", "11,000", "0.0831".
std::string estimate_digits(double value);
/// Returns planned seconds with three significant digits: "95.1 s", "8.31 ms".
std::string planned_seconds_text(double seconds);

/// Returns "1.50 GiB", "12.00 MiB", "640 B".
std::string bytes_text(std::int64_t bytes);

/// Returns "8,123".
std::string count_text(std::int64_t count);

/// Returns a number with `places` digits after the decimal point: "0.25".
std::string decimal_text(double value, int places);

/// Returns the dry run's table: bytes by kind, and their sum.
std::string memory_table(const device::BytesByKind& bytes, const std::string& title);

/// Returns a schedule with one task per line: "micro-batch 0  gather          block 1, slot 0".
std::string schedule_text(const sharding::Schedule& schedule, const sharding::Names& names);

/// Returns how long groups stay gathered under a budget, and the bytes that a step gathers; empty without a budget.
std::string residency_text(const sharding::Residency& residency);

/// Returns {"loss": ..., "tokens": ...}.
std::string mean_loss_json(double loss, std::int64_t tokens);

/// Returns a task as a trace event, such as "forward 1", on the lane for compute or for communication.
TraceEvent trace_event(const sharding::Task& task, int rank, double begin_seconds, double seconds);

}  // namespace fsdp::report
