// SPDX-License-Identifier: Apache-2.0
/// @file
/// Texts and tables that the program prints.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/sharding/residency.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/trainer/report/metrics.hpp>
#include <tessera/trainer/report/trace.hpp>

namespace fsdp::report {

/// Describes the run that begins, in a few lines.
std::string start_text(const StartRecord& record, const std::string& data, std::int64_t training_windows,
                       std::int64_t held_out_windows, std::int64_t peak_bytes);

/// Describes the rounds in which the pieces of a step are computed, and what a last one that is not full costs.
/// `sharing`: consecutive ranks that compute each piece together.
std::string rounds_text(std::int64_t pieces, std::int64_t ranks, std::int64_t sharing = 1);

/// Describes the cost of verifying every `every` steps, with so many pieces of a step on so many ranks.
std::string verification_text(std::int64_t every, std::int64_t pieces, std::int64_t ranks);

/// Describes the run that ended: steps, tokens, time and memory, and a table of collectives if there were any.
std::string summary_text(const SummaryRecord& record);

/// "12.340 s", "1.234 ms".
std::string seconds_text(double seconds);

/// A figure of a model in three significant digits: "95.1", "11,000", "0.0831".
std::string estimate_digits(double value);
/// Seconds that a plan expects, in as many: "95.1 s", "8.31 ms".
std::string planned_seconds_text(double seconds);

/// "1.50 GiB", "12.00 MiB", "640 B".
std::string bytes_text(std::int64_t bytes);

/// "8,123".
std::string count_text(std::int64_t count);

/// A number with so many digits behind the point: "0.25".
std::string decimal_text(double value, int places);

/// The dry run's table: bytes by kind, and their sum.
std::string memory_table(const device::BytesByKind& bytes, const std::string& title);

/// A schedule, one task a line: "micro-batch 0  gather          block 1, slot 0".
std::string schedule_text(const sharding::Schedule& schedule, const sharding::Names& names);

/// How long groups are held by a budget, and what a step gathers; empty without a budget.
std::string residency_text(const sharding::Residency& residency);

/// Returns {"loss": ..., "tokens": ...}.
std::string mean_loss_json(double loss, std::int64_t tokens);

/// Returns a task as a trace event, such as "forward 1", on the lane for compute or for communication.
TraceEvent trace_event(const sharding::Task& task, int rank, double begin_seconds, double seconds);

}  // namespace fsdp::report
