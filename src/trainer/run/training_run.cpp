// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/training_run.hpp>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstddef>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/training/program.hpp>
#include <tessera/trainer/data/windows.hpp>
#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::train {

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

TrainingRun::TrainingRun(Engine& engine, const TrainOptions& options, const RunWatch& watch, CheckpointDir dir)
    : engine_(engine),
      facts_(engine.facts()),
      ranks_(engine.ranks()),
      options_(options),
      watch_(watch),
      samples_(
          ranks_, options, facts_.names_folder ? options.model.name : "", facts_.size.sequences, facts_.vocabulary,
          [&engine](std::span<const std::int32_t> tokens, std::int64_t row) { return engine.logits(tokens, row); }),
      early_stop_(options.patience),
      log_(ranks_, options, facts_.unit),
      checkpoints_(engine, options, std::move(dir)),
      loss_scale_(loss_scale_of(options)) {}

int TrainingRun::run() {
  begin();
  const bool saves = options_.checkpoint_dir && options_.on_signal == OnSignal::save;
  signals_.catch_stops(!leads() ? nullptr
                       : saves  ? "saves after this step; once more ends without saving"
                                : "ends after this step; once more ends at once");
  if (const int signal = advance(last_step(options_)); signal != 0) return stop(signal);
  return finish();
}

int TrainingRun::advance(std::int64_t last) {
  while (steps_ < last && !early_stop_.due()) {
    if (log_.console().output_is_closed()) signals_.ask_to_stop(SIGPIPE);
    step(steps_ + 1 < last);
    if (!facts_.asynchronous || queued_.size() > 1) report();
    if (due(options_.validation_every)) validate();
    if (stopped_ != 0) return stopped_;
    if (due(options_.checkpoint_every)) save();
    if (steps_ == last) break;
    const comm::SignalRequests asked = engine_.asked();
    if (asked.stop != 0) return asked.stop;
    if (asked.saves <= saves_asked_) continue;
    saves_asked_ = asked.saves;
    if (!options_.checkpoint_dir) log_.console().line("SIGUSR1: nothing is saved without --checkpoint-dir");
    save();
  }
  return 0;
}

void TrainingRun::begin() {
  checkpoints_.require_folder();
  const Loaded loaded = checkpoints_.load();
  if (loaded.resumed) restore(*loaded.resumed);
  std::vector<std::string> lines;
  if (facts_.host_bytes > 0)
    lines.push_back(message("offload   ", report::bytes_text(facts_.host_bytes), " of host memory"));
  if (!facts_.residency.empty()) lines.push_back(facts_.residency);
  if (!facts_.steps.empty()) lines.push_back(facts_.steps);
  if (options_.verify_every > 0)
    lines.push_back("verify    " +
                    report::verification_text(options_.verify_every, facts_.start.pieces, ranks_.size()));
  if (!facts_.reduced_sooner.empty()) lines.push_back(facts_.reduced_sooner);
  lines.insert(lines.end(), loaded.lines.begin(), loaded.lines.end());
  log_.open();
  if (!leads()) return;
  warn_of_cores(ranks_.size(), facts_.start.threads);
  if (!facts_.lost_promise.empty()) print_warning(facts_.lost_promise);
  report::StartRecord record = facts_.start;
  record.first_step = steps_ + 1;
  log_.begin(record,
             report::start_text(record, facts_.source, facts_.training, facts_.validation, facts_.planned_bytes),
             lines);
}

void TrainingRun::restore(const checkpoint::TrainerState& state) {
  steps_ = state.step;
  engine_.seek({.epoch = state.epoch, .index = state.index});
  tokens_ = state.tokens;
  if (loss_scale_ && state.loss_scale) loss_scale_ = DynamicLossScale(*state.loss_scale);
  early_stop_.restore(state.best);
}

device::StepInputs TrainingRun::step(bool more) {
  const device::StepInputs inputs{.lr = lr_at(schedule_of(options_), steps_),
                                  .loss_scale = loss_scale_ ? loss_scale_->scale() : 1.0};
  queued_.push_back({.number = ++steps_, .inputs = inputs, .begin = Clock::now()});
  const StepResults& enqueued = engine_.step(inputs, more);
  if (!enqueued.digests.empty()) log_.digests(steps_, enqueued.digests);
  return inputs;
}

std::pair<double, StepResults> TrainingRun::make_step() {
  const device::StepInputs inputs = step(false);
  while (queued_.size() > 1) report();
  return {inputs.lr, engine_.results()};
}

/// Reports the oldest queued step; waits for the device.
void TrainingRun::report() {
  const StepResults results = engine_.results();
  const Clock::time_point done = results.done.value_or(Clock::now());
  if (!first_done_) first_done_ = done;
  const QueuedStep step = queued_.front();
  const device::StepDecision& found = results.decision;
  const bool first = !loss_;
  queued_.pop_front();
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
             .mfu = results.flops / seconds / facts_.peak.flops_per_second,
             .mfu_peak = facts_.peak.name,
             .traffic = results.traffic,
             .groups = group_records(options_.units.groups, step.inputs.lr, results.norms_apart)});
  if (skipped)
    log_.console().line(message("step ", step.number, ": gradients overflow at loss scale ", loss_scale,
                                "; skipped, the scale is ", loss_scale_->scale(), " now"));
}

void TrainingRun::report_all() {
  while (!queued_.empty()) report();
}

/// Measures the held-out loss, if data are held out, and writes a sample; returns nothing if a signal ended this.
std::optional<double> TrainingRun::validate() {
  report_all();
  std::optional<double> held_out;
  if (facts_.validation > 0) {
    const MeanLoss mean = mean_loss(
        ranks_, [&](std::span<const std::int64_t> samples) { return engine_.evaluate(samples, signals_.asked()); },
        facts_.size.sequences, data::evenly_spread(facts_.training, facts_.validation, options_.validation_windows),
        [&](std::int64_t seen, std::int64_t all) {
          log_.console().progress(message("step ", steps_, "  held-out loss: ", seen, " of ", all, " windows"));
        },
        options_.sequence.ranks);
    if ((stopped_ = mean.stop) != 0) return std::nullopt;
    require<DivergedError>(std::isfinite(mean.loss), "step ", steps_, ": the held-out loss is ", std::abs(mean.loss),
                           "; nothing was saved. Lower --lr, or look at the held-out data");
    log_.held_out({.step = steps_, .validation_loss = mean.loss, .tokens = mean.tokens}, facts_.loss_unit);
    held_out_ = held_out = mean.loss;
    validated_step_ = steps_;
    // A run without --until would not validate at this step, so that this loss does not count for --patience.
    const bool counts =
        steps_ == options_.steps || (options_.validation_every > 0 && steps_ % options_.validation_every == 0);
    if (counts && early_stop_.improves(mean.loss, steps_)) save();
  }
  if (const auto sample = samples_.write(steps_)) log_.sample(*sample);
  return held_out;
}

/// Ends a run after a stop signal, and keeps the work done so far.
int TrainingRun::stop(int signal) {
  if (options_.on_signal == OnSignal::save)
    save();
  else
    report_all();
  watch_.write();
  if (leads()) {
    const std::string kept =
        saved() ? checkpoints_.path()
                : std::string(options_.on_signal == OnSignal::save ? "nothing is saved without --checkpoint-dir"
                                                                   : "not saved (--on-signal stop)");
    log_.stopped(message(comm::name_of_stop(signal), signal == SIGPIPE ? " (nobody reads stdout any more)" : "",
                         ": ended after step ", steps_, ": ", kept));
  }
  return 128 + signal;
}

void TrainingRun::save() {
  report_all();
  if (saved()) return;
  const data::Position position = engine_.position();
  checkpoints_.save({.tokens = tokens_,
                     .epoch = position.epoch,
                     .index = position.index,
                     .loss_scale = loss_scale_ ? std::optional(loss_scale_->state()) : std::nullopt,
                     .best = early_stop_.best()});
  if (saved()) log_.console().line("checkpoint " + checkpoints_.path());
}

int TrainingRun::finish() {
  const std::optional<double> held_out = validated_step_ == steps_ ? held_out_ : validate();
  if (stopped_ != 0) return stop(stopped_);
  save();
  watch_.write();
  if (early_stop_.due()) {
    const checkpoint::BestLoss& best = *early_stop_.best();
    log_.console().line(message("step ", steps_, ": ended, since ", best.worse,
                                " held-out losses in a row were no lower than that of step ", best.step, ", ",
                                best.loss));
  }
  const comm::MeshTraffic traffic = engine_.traffic();
  const std::optional<report::StepTimes> step = meter_.mean();
  const std::optional<report::Straggler> slowest = straggler(ranks_, step);
  log_.end({.steps = steps_,
            .loss = loss_,
            .validation_loss = held_out,
            .unit = facts_.unit,
            .tokens = tokens_,
            .seconds = watch_.seconds(),
            .first_step_seconds = first_done_ ? std::optional(watch_.seconds(*first_done_)) : std::nullopt,
            .step = step,
            .planned = facts_.start.planned,
            .straggler = slowest,
            .peak_bytes = engine_.peak_bytes(),
            .checkpoint = checkpoints_.path(),
            .traffic = traffic});
  return 0;
}

}  // namespace fsdp::train
