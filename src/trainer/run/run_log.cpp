// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/run_log.hpp>

#include <cstdio>
#include <filesystem>
#include <optional>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
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

RunLog::RunLog(const comm::Ranks& ranks, const TrainOptions& options, std::string_view unit)
    : ranks_(ranks), options_(options), unit_(unit) {}

void RunLog::open() {
  const auto open_file = [&]<class File>(std::string_view flag, const std::optional<std::string>& path, File& file) {
    comm::together(ranks_, flag, [&] {
      if (speaks() && path) file = File(*path);
    });
  };
  open_file("--metrics", options_.metrics, metrics_);
  open_file("--digests", options_.digests, digests_);
  open_file("--tensorboard", options_.tensorboard, tensorboard_);
}

template <class Record>
void RunLog::write(const Record& record) {
  metrics_.write(record);
  tensorboard_.write(record);
}

void RunLog::begin(const report::StartRecord& record, const std::string& text, std::span<const std::string> lines) {
  if (!speaks()) return;
  if (options_.warmup > options_.steps)
    print_warning(message("--warmup ", options_.warmup, " is more than --steps ", options_.steps,
                          ", so that the learning rate ends at ", lr_at(schedule_of(options_), options_.steps - 1),
                          " of --lr ", options_.lr, "; take a shorter one, or more steps"));
  write(record);
  digests_.begin(report::digest_start(record, options_.grad_accum));
  console_ = report::Console(stdout, report::style_of(stdout), record.first_step, last_step(options_),
                             options_.log_every, unit_);
  console_.line(text);
  for (const std::string& each : lines) console_.line(each);
}

void RunLog::step(const report::StepRecord& record) {
  write(record);
  console_.step(record);
}

void RunLog::held_out(const report::ValidationRecord& record, std::string_view unit) {
  write(record);
  console_.finish();
  console_.line(message("step ", record.step, "  held-out loss ", record.validation_loss, unit.empty() ? "" : " ", unit,
                        " over ", record.tokens, " targets"));
}

void RunLog::sample(const report::SampleRecord& record) {
  write(record);
  console_.line(message("step ", record.step, "  sample: ", record.whole()));
}

void RunLog::end(const report::SummaryRecord& record) {
  write(record);
  console_.finish();
  console_.line(report::summary_text(record));
}

void RunLog::stopped(const std::string& sentence) {
  if (!speaks()) return;
  console_.finish();
  console_.line(sentence);
  if (!report::are_same_file(stdout, stderr)) print_sentence(sentence);
}

}  // namespace fsdp::train
