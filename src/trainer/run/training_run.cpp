// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/training_run.hpp>

#include <cmath>
#include <csignal>
#include <span>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/training/program.hpp>
#include <tessera/trainer/data/windows.hpp>
#include <tessera/trainer/report/report.hpp>
#include <tessera/trainer/run/queued_steps.hpp>
#include <tessera/trainer/run/validation.hpp>

namespace fsdp::train {
namespace {

Samples samples_of(Engine& engine, const TrainOptions& options) {
  const EngineFacts& facts = engine.facts();
  return Samples(
      engine.ranks(), options, facts.names_folder ? options.model.name : "", facts.size.sequences, facts.vocabulary,
      [&engine](std::span<const std::int32_t> tokens, std::int64_t row) { return engine.logits(tokens, row); });
}

}  // namespace

TrainingRun::TrainingRun(Engine& engine, const TrainOptions& options, const RunWatch& watch, CheckpointDir dir)
    : engine_(engine),
      facts_(engine.facts()),
      ranks_(engine.ranks()),
      options_(options),
      watch_(watch),
      samples_(samples_of(engine, options)),
      early_stop_(options.patience),
      log_(ranks_, options, facts_.unit),
      queued_(options, log_),
      checkpoints_(engine, options, std::move(dir)) {}

TrainingRun::~TrainingRun() = default;

int TrainingRun::run() {
  begin();
  signals_.catch_stops(leads() ? answer_to_stop() : nullptr);
  if (const int signal = advance(last_step(options_)); signal != 0) return stop(signal);
  return finish();
}

int TrainingRun::advance(std::int64_t last) {
  while (steps_ < last && !early_stop_.due()) {
    if (log_.reader_is_gone()) signals_.ask_to_stop(SIGPIPE);
    step(steps_ + 1 < last);
    if (!facts_.asynchronous || queued_.size() > 1) report();
    if (due(options_.validation_every)) validate();
    if (stopped_ != 0) return stopped_;
    if (due(options_.checkpoint_every)) save();
    if (steps_ == last) break;
    const comm::SignalRequests asked = engine_.asked();
    if (asked.stop != 0) return asked.stop;
    if (asked.saves > saves_asked_) save_as_asked(asked.saves);
  }
  return 0;
}

void TrainingRun::begin() {
  checkpoints_.require_folder();
  const Loaded loaded = checkpoints_.load();
  if (loaded.resumed) restore(*loaded.resumed);
  const std::vector<std::string> lines = first_lines(loaded.lines);
  log_.open();
  if (!leads()) return;
  warn_of_cores(ranks_.size(), facts_.start.threads);
  report::StartRecord record = facts_.start;
  record.first_step = steps_ + 1;
  log_.begin(record,
             report::start_text(record, facts_.source, facts_.training, facts_.validation, facts_.planned_bytes),
             lines);
}

/// Puts the messages about the plan before the lines of loading.
std::vector<std::string> TrainingRun::first_lines(std::vector<std::string> lines) const {
  std::vector<std::string> first;
  if (facts_.host_bytes > 0)
    first.push_back(message("offload   ", report::bytes_text(facts_.host_bytes), " of host memory"));
  if (!facts_.residency.empty()) first.push_back(facts_.residency);
  if (options_.verify_every > 0)
    first.push_back("verify    " +
                    report::verification_text(options_.verify_every, facts_.start.pieces, ranks_.size()));
  if (!facts_.reduced_sooner.empty()) first.push_back(facts_.reduced_sooner);
  lines.insert(lines.begin(), first.begin(), first.end());
  return lines;
}

/// Returns the state of the run's parts for a checkpoint.
checkpoint::TrainerState TrainingRun::state() const {
  const data::Position position = engine_.position();
  return {.tokens = queued_.tokens(),
          .epoch = position.epoch,
          .index = position.index,
          .loss_scale = queued_.loss_scale(),
          .best = early_stop_.best()};
}

void TrainingRun::restore(const checkpoint::TrainerState& state) {
  steps_ = state.step;
  engine_.seek({.epoch = state.epoch, .index = state.index});
  queued_.restore(state.tokens, state.loss_scale);
  early_stop_.restore(state.best);
}

device::StepInputs TrainingRun::step(bool more) {
  const device::StepInputs inputs = queued_.add(steps_++);
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
void TrainingRun::report() { queued_.report(engine_.results(), facts_.peak); }

void TrainingRun::report_all() {
  while (!queued_.empty()) report();
}

std::optional<double> TrainingRun::validate() {
  report_all();
  const std::optional<double> held_out = facts_.validation > 0 ? held_out_loss() : std::nullopt;
  if (stopped_ != 0) return std::nullopt;
  if (const auto sample = samples_.write(steps_)) log_.sample(*sample);
  return held_out;
}

/// Returns nothing if a signal ended the evaluation.
std::optional<double> TrainingRun::held_out_loss() {
  const MeanLoss mean = mean_loss(
      ranks_, [&](std::span<const std::int64_t> samples) { return engine_.evaluate(samples, signals_.asked()); },
      facts_.size.sequences, data::evenly_spread(facts_.training, facts_.validation, options_.validation_windows),
      [&](std::int64_t seen, std::int64_t all) {
        log_.progress(message("step ", steps_, "  held-out loss: ", seen, " of ", all, " windows"));
      },
      options_.sequence.ranks);
  if ((stopped_ = mean.stop) != 0) return std::nullopt;
  require<DivergedError>(std::isfinite(mean.loss), "step ", steps_, ": the held-out loss is ", std::abs(mean.loss),
                         "; nothing was saved. Lower --lr, or look at the held-out data");
  log_.held_out({.step = steps_, .validation_loss = mean.loss, .tokens = mean.tokens}, facts_.loss_unit);
  held_out_ = mean.loss;
  validated_step_ = steps_;
  // A run without --until would not validate at this step, so that this loss does not count for --patience.
  const bool counts =
      steps_ == options_.steps || (options_.validation_every > 0 && steps_ % options_.validation_every == 0);
  if (counts && early_stop_.improves(mean.loss, validated_step_)) save();
  return mean.loss;
}

const char* TrainingRun::answer_to_stop() const {
  return options_.checkpoint_dir && options_.on_signal == OnSignal::save
             ? "saves after this step; once more ends without saving"
             : "ends after this step; once more ends at once";
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

void TrainingRun::save_as_asked(std::int64_t asked) {
  saves_asked_ = asked;
  if (!options_.checkpoint_dir) log_.line("SIGUSR1: nothing is saved without --checkpoint-dir");
  save();
}

void TrainingRun::save() {
  report_all();
  if (saved()) return;
  checkpoints_.save(state());
  if (saved()) log_.line("checkpoint " + checkpoints_.path());
}

int TrainingRun::finish() {
  const std::optional<double> held_out = validated_step_ == steps_ ? held_out_ : validate();
  if (stopped_ != 0) return stop(stopped_);
  save();
  watch_.write();
  if (early_stop_.due()) {
    const checkpoint::BestLoss& best = *early_stop_.best();
    log_.line(message("step ", steps_, ": ended, since ", best.worse,
                      " held-out losses in a row were no lower than that of step ", best.step, ", ", best.loss));
  }
  const comm::MeshTraffic traffic = engine_.traffic();
  const std::optional<report::StepTimes> step = queued_.meter().mean();
  const std::optional<report::Straggler> slowest = straggler(ranks_, step);
  log_.end(
      {.steps = steps_,
       .loss = queued_.loss(),
       .validation_loss = held_out,
       .unit = facts_.unit,
       .tokens = queued_.tokens(),
       .seconds = watch_.seconds(),
       .first_step_seconds = queued_.first_done() ? std::optional(watch_.seconds(*queued_.first_done())) : std::nullopt,
       .step = step,
       .planned = facts_.start.planned,
       .straggler = slowest,
       .peak_bytes = engine_.peak_bytes(),
       .checkpoint = checkpoints_.path(),
       .traffic = traffic});
  return 0;
}

}  // namespace fsdp::train
