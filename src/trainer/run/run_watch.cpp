// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/run_watch.hpp>

#include <filesystem>

#include <tessera/trainer/report/report.hpp>

namespace fsdp::train {

RunWatch::RunWatch(const TrainOptions& options, int rank)
    : rank_(rank), trace_(options.trace ? report::trace_path(*options.trace, rank) : std::filesystem::path()) {}

double RunWatch::seconds(Clock::time_point until) const {
  return std::chrono::duration<double>(until - start_).count();
}

void RunWatch::after(const sharding::Task& task, const device::BytesByKind& held, std::int64_t activations) {
  const double end = seconds();
  trace_.add(report::trace_event(task, rank_, seconds(task_begin_), end - seconds(task_begin_)));
  trace_.add(report::memory_event(held, activations, rank_, end));
}

}  // namespace fsdp::train
