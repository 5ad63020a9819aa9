// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/queued_steps.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {
namespace {

constexpr double straggles = 1.25;  // a straggler exceeds the median rank's seconds by this factor

}  // namespace

void StepMeter::add(const report::StepTimes& step) {
  sum_.all += step.all;
  if (step.collectives) sum_.collectives = sum_.collectives.value_or(0) + *step.collectives;
  ++steps_;
}

std::optional<report::StepTimes> StepMeter::mean() const {
  if (steps_ == 0) return std::nullopt;
  const auto steps = static_cast<double>(steps_);
  report::StepTimes mean{.all = sum_.all / steps};
  if (sum_.collectives) mean.collectives = *sum_.collectives / steps;
  return mean;
}

std::optional<report::Straggler> straggler(const comm::Ranks& ranks, const std::optional<report::StepTimes>& mean) {
  if (ranks.size() == 1 || !mean || !mean->collectives) return std::nullopt;
  std::vector<double> seconds(static_cast<std::size_t>(ranks.size()), 0.0);
  seconds[static_cast<std::size_t>(ranks.rank())] = mean->all - *mean->collectives;
  ranks.reduce(std::span<double>(seconds), comm::Reduction::max, {"times of steps"});
  std::vector<double> sorted = seconds;
  std::ranges::sort(sorted);
  const double median = sorted[(sorted.size() - 1) / 2];
  const auto slowest = std::ranges::max_element(seconds);
  if (*slowest <= straggles * median) return std::nullopt;
  return report::Straggler{.rank = slowest - seconds.begin(), .ratio = *slowest / median};
}

QueuedSteps::QueuedSteps(const TrainOptions& options, RunLog& log)
    : options_(options), log_(log), loss_scale_(loss_scale_of(options)) {}

void QueuedSteps::restore(std::int64_t tokens, const std::optional<DynamicLossScale::State>& loss_scale) {
  tokens_ = tokens;
  if (loss_scale_ && loss_scale) loss_scale_ = DynamicLossScale(*loss_scale);
}

std::optional<DynamicLossScale::State> QueuedSteps::loss_scale() const {
  return loss_scale_ ? std::optional(loss_scale_->state()) : std::nullopt;
}

device::StepInputs QueuedSteps::add(std::int64_t index) {
  const device::StepInputs inputs{.lr = lr_at(schedule_of(options_), index),
                                  .loss_scale = loss_scale_ ? loss_scale_->scale() : 1.0};
  steps_.push_back({.number = index + 1, .inputs = inputs, .begin = Clock::now()});
  return inputs;
}

std::vector<report::GroupRecord> group_records(std::span<const OptimizerGroup> groups, double lr,
                                               std::span<const double> norms) {
  std::vector<report::GroupRecord> records;
  std::size_t clipped = 0;
  for (const OptimizerGroup& group : groups) {
    if (!group.lr && !group.clip) continue;
    report::GroupRecord& record = records.emplace_back(report::GroupRecord{.name = selection_text(group)});
    if (group.lr) record.lr = lr * *group.lr;
    if (group.clip) record.grad_norm = std::abs(norms[clipped++]);
  }
  return records;
}

void QueuedSteps::report(const StepResults& results, const report::MatmulPeak& peak) {
  const Clock::time_point done = results.done.value_or(Clock::now());
  if (!first_done_) first_done_ = done;
  const QueuedStep step = steps_.front();
  const device::StepDecision& found = results.decision;
  const bool first = !loss_;
  steps_.pop_front();
  loss_ = found.loss / results.targets();
  require<DivergedError>(
      found.stopped == 0, "step ", step.number, ": loss is ", std::abs(*loss_), " and the gradient norm is ",
      std::abs(found.norm), "; stopped before any weight was touched. Lower --lr",
      options_.units.groups.empty() ? "" : " or that of a --group", ", or look at the data of this step");
  const bool skipped = found.skipped != 0;
  const double loss_scale = step.inputs.loss_scale;
  if (loss_scale_) loss_scale_->update(!skipped, loss_scale);
  const std::int64_t step_tokens = options_.batch_size * options_.seq_len;
  tokens_ += step_tokens;
  const double seconds = std::chrono::duration<double>(done - std::max(step.begin, last_done_)).count();
  last_done_ = done;
  if (!first) meter_.add({.all = seconds, .collectives = results.collective_seconds});
  log_.step({.step = step.number,
             .loss = *loss_,
             .grad_norm = std::abs(found.norm),
             .loss_scale = loss_scale_ ? std::optional(loss_scale) : std::nullopt,
             .skipped = skipped,
             .lr = step.inputs.lr,
             .tokens = tokens_,
             .tokens_per_second = static_cast<double>(step_tokens) / seconds,
             .step_seconds = seconds,
             .peak_bytes = results.peak_bytes,
             .tflops = results.flops / seconds * 1e-12,
             .mfu = results.flops / seconds / peak.flops_per_second,
             .mfu_peak = peak.name,
             .traffic = results.traffic,
             .groups = group_records(options_.units.groups, step.inputs.lr, results.norms_apart)});
  if (skipped)
    log_.line(message("step ", step.number, ": gradients overflow at loss scale ", loss_scale,
                      "; skipped, the scale is ", loss_scale_->scale(), " now"));
}

}  // namespace fsdp::train
