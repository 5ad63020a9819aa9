// SPDX-License-Identifier: Apache-2.0
/// @file
/// Training of one model on one rank: data, steps, metrics, validation, checkpoints.
///
/// The loop is the same on every rank; rank 0 speaks. What does not depend on the stack is ordinary code in src/.
#pragma once

#include <chrono>
#include <cmath>
#include <concepts>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/comm/launch/signals.hpp>
#include <tessera/fsdp/device/compute/cpu.hpp>
#include <tessera/fsdp/execution/verification.hpp>
#include <tessera/fsdp/models/model.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/data/source.hpp>
#include <tessera/trainer/data/windows.hpp>
#include <tessera/trainer/flags/group_flag.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/generate/samples.hpp>
#include <tessera/trainer/report/matmul_peak.hpp>
#include <tessera/trainer/report/report.hpp>
#include <tessera/trainer/report/trace.hpp>
#include <tessera/trainer/run/early_stop.hpp>
#include <tessera/trainer/run/expected_step.hpp>
#include <tessera/trainer/run/feed.hpp>
#include <tessera/trainer/run/queued_steps.hpp>
#include <tessera/trainer/run/run_checkpoints.hpp>
#include <tessera/trainer/run/run_log.hpp>
#include <tessera/trainer/run/run_record.hpp>
#include <tessera/trainer/run/same_bits.hpp>
#include <tessera/trainer/run/step_plan.hpp>
#include <tessera/trainer/run/validation.hpp>

namespace fsdp::train {

/// Trains a model on a source: steps, console, metrics, held-out losses, samples, checkpoints, signals. `run` is all of
/// `tessera train` but its flags.
template <fsdp::Model Model, data::Source Source, class Optimizer = optim::RunTimeOptimizer>
requires std::same_as<typename Source::Batch, typename Model::Batch>
class Trainer {
 public:
  using Comm = typename Model::Stack::Comm;
  using Device = typename Model::Stack::Device;
  static_assert(check_model<Model>() && data::check_source<Source>());

  /// Options, source and communicator must outlive it. `dir`: the claim to --checkpoint-dir; made here if left out.
  Trainer(Comm& communicator, const TrainOptions& options, const Model& model, const Source& source,
          typename Model::Stack::Sharding sharding, typename Model::Stack::Tiling tiling,
          const Optimizer& optimizer = {}, std::optional<CheckpointDir> dir = {})
      : communicator_(communicator),
        options_(options),
        model_(model),
        source_(source),
        trace_(options.trace ? report::trace_path(*options.trace, communicator.rank()) : std::filesystem::path()),
        stack_text_(stack_text(communicator, policy_texts<typename Model::Stack>(sharding, tiling), options.sequence)),
        data_(agreed_data(communicator, options, model_, source)),
        pieces_(sharding::facts_of(sharding).pieces),
        reduced_sooner_(reduced_sooner(sharding)),
        size_(agreed_size(communicator, options, sharding)),
        planned_(expected_step(communicator, options, model_, sharding, tiling,
                               plan_request(options, communicator.size(), sharding, optimizer), optimizer,
                               [&] { return mean_document_length(source_, device::host_memory<Device>); })),
        peak_(report::measure_matmul_peak<Device, typename Model::Stack::Precision::Compute>(
            communicator, comm::rank_threads(size_.threads, communicator.size()))),
        training_(communicator, model_, size_, sharding, tiling,
                  {.optimizer = optimizer,
                   .rules = {.clip = options.clip, .skips_overflow = loss_scale_of(options).has_value()},
                   .graphs = options.cuda_graphs,
                   .observer = observer()}),
        feed_(training_.module().sequence_group(), training_.counts(), source,
              data::sampler_of(source, options.seed, options.batch_size), size_.sequences, size_.micro_batches, pieces_,
              signals_),
        held_out_batch_(source, size_.sequences, 1, device::host_memory<Device>),
        samples_(samples()),
        early_stop_(options.patience),
        log_(communicator, options, nn::unit_of<typename Model::Batch>()),
        queued_(options, log_),
        checkpoints_(communicator, options, dir ? *std::move(dir) : CheckpointDir(communicator, options),
                     run_model_of(training_, options), is_folder<typename Model::Config>(options.model),
                     run_record(options, model_, sharding, tiling, training_.optimizer().optimizer(),
                                training_.request(), stack_text_, data_),
                     source.training()) {
    if (options.verify_every == 0) return;
    if constexpr (may_verify) {
      verification_.emplace(training_.module(), training_.executor());
      resting_.emplace(training_.module(), training_.optimizer());
    }
  }

  /// Returns the exit status: 0, or 128 + signal where one ended the run after a step. Throws DivergedError on all
  /// ranks where a loss, weight or optimizer state is not finite.
  [[nodiscard]] int run() {
    begin();
    signals_.catch_stops(leads() ? answer_to_stop() : nullptr);
    while (optimizer().steps() < options_.steps && !early_stop_.due()) {
      if (log_.reader_is_gone()) signals_.ask_to_stop(SIGPIPE);
      queue_step();
      if (!Device::asynchronous || queued_.size() > 1) report();
      if (due(options_.validation_every)) validate_now();
      if (stopped_ != 0) return stop(stopped_);
      if (due(options_.checkpoint_every)) save();
      if (optimizer().steps() == options_.steps) break;
      const comm::SignalRequests asked = feed_.asked();
      if (asked.stop != 0) return stop(asked.stop);
      if (asked.saves > saves_asked_) save_as_asked(asked.saves);
    }
    return finish();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr bool may_verify = StepWatch<Model>::may_verify;

  static double seconds_between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
  }
  static double seconds_since(Clock::time_point begin) { return seconds_between(begin, Clock::now()); }
  auto& optimizer() { return training_.optimizer(); }
  bool leads() const { return communicator_.rank() == 0; }
  bool saved() { return checkpoints_.saved(optimizer().steps()); }
  bool due(std::int64_t every) {
    return every > 0 && optimizer().steps() % every == 0 && optimizer().steps() < options_.steps;
  }
  /// The unit of the model's loss, if its batch names one.
  static constexpr std::string_view loss_unit() {
    if constexpr (nn::detail::has_loss_unit<typename Model::Batch>())
      return Model::Batch::loss_unit;
    else
      return {};
  }
  std::int64_t skipped_binary() const {
    if constexpr (data::detail::has_skipped_binary<Source>())
      return source_.skipped_binary();
    else
      return 0;
  }
  /// The size of a step. With pieces, all ranks need equal arithmetic and as many threads as in the resumed run: throws
  /// InputError on all ranks if not.
  static StepSize agreed_size(Comm& communicator, const TrainOptions& options,
                              const typename Model::Stack::Sharding& sharding) {
    const int pieces = sharding::facts_of(sharding).pieces;
    StepSize size = required_step_size(options, communicator.size(), pieces, writes_text<Model>);
    if (pieces == 0) return size;
    size.threads = static_cast<int>(with_resumed_threads<Model>(communicator, options, sharding).launch.threads);
    agree_on_last_bits(communicator, last_bits<Device>(comm::rank_threads(size.threads, communicator.size())));
    return size;
  }

  Samples samples() {
    if constexpr (writes_text<Model>)
      return samples_of(communicator_, options_, training_.executor(), size_.sequences, model_.head().logits_columns());
    else
      return Samples(communicator_, options_);
  }

  void begin() {
    checkpoints_.require_folder();
    auto [lines, resumed] = checkpoints_.load(training_);
    if (resumed) restore(*resumed);
    if (!reduced_sooner_.empty()) lines.insert(lines.begin(), reduced_sooner_);
    if (verification_)
      lines.insert(lines.begin(),
                   "verify    " + report::verification_text(options_.verify_every, pieces_, communicator_.size()));
    if (std::string held = report::residency_text(training_.module().residency()); !held.empty())
      lines.insert(lines.begin(), std::move(held));
    if (const std::int64_t host = training_.plan().offloaded_bytes; host > 0)
      lines.insert(lines.begin(), message("offload   ", report::bytes_text(host), " of host memory"));
    keep_resting();
    log_.open();
    if (!leads()) return;
    warn_of_cores(communicator_.size(), training_.request().shape.threads);
    const report::StartRecord record{.stack = stack_text_,
                                     .model_name = model_name<typename Model::Config>(options_.model),
                                     .sizes = values_of(model_.config()),
                                     .optimizer = std::string(std::string_view(optimizer().optimizer().name())),
                                     .constants = values_of(optimizer().optimizer()),
                                     .groups = values_of_groups(options_.units.groups),
                                     .seed = options_.seed,
                                     .world = communicator_.size(),
                                     .ranks_per_sequence = options_.sequence.ranks,
                                     .pieces = pieces_,
                                     .threads = training_.request().shape.threads,
                                     .instruction_set = device::arithmetic(),
                                     .parameters = parameter_count(model_),
                                     .trained = trained_count(model_),
                                     .first_step = optimizer().steps() + 1,
                                     .steps = options_.steps,
                                     .skipped_binary = skipped_binary(),
                                     .planned = planned_};
    log_.begin(record,
               report::start_text(record, source_.text(), source_.training(), source_.validation(),
                                  training_.plan().peak_bytes()),
               lines);
  }

  /// The state of the trainer's parts for a checkpoint, and its restoration.
  /// @{
  checkpoint::TrainerState state() const {
    const data::Position position = feed_.position();
    return {.tokens = queued_.tokens(),
            .epoch = position.epoch,
            .index = position.index,
            .loss_scale = queued_.loss_scale(),
            .best = early_stop_.best()};
  }
  void restore(const checkpoint::TrainerState& state) {
    feed_.restore({.epoch = state.epoch, .index = state.index});
    queued_.restore(state.tokens, state.loss_scale);
    early_stop_.restore(state.best);
  }
  /// @}

  void queue_step() {
    const std::int64_t index = optimizer().steps();
    const auto begin = Clock::now();
    double in_collectives = 0;
    if constexpr (!Device::asynchronous) in_collectives = collective_seconds(training_.module());
    const auto batch = feed_.take(index + 1 < options_.steps);
    QueuedStep& step = queued_.add(index, batch.counts, begin);
    const auto scale = static_cast<float>(step.loss_scale / step.targets());
    const std::function<void()> verify = [&] { verify_step(index + 1, scale); };
    const comm::MeshTraffic before = training_.traffic();
    training_.queue(batch.micro_batches, scale, {.lr = step.lr, .loss_scale = step.loss_scale},
                    batch.counts.valid_targets == options_.batch_size * options_.seq_len,
                    verifies(index + 1) ? verify : std::function<void()>());
    step.traffic = training_.traffic() - before;
    if constexpr (!Device::asynchronous)
      step.collective_seconds = collective_seconds(training_.module()) - in_collectives;
    if (auto* const digests = training_.executor().watch().steps()) log_.digests(index + 1, digests->collect());
    keep_resting();
  }

  bool verifies(std::int64_t step) const { return verification_ && step % options_.verify_every == 0; }
  /// Before a step's update. Throws CorruptionError on all ranks, so that nothing is saved.
  void verify_step(std::int64_t step, float scale) {
    if constexpr (may_verify) {
      resting_->compare(step - 1);
      verification_->verify(step, scale, [&](int piece) { return feed_.piece(piece); });
    }
  }
  /// After the step before one that is verified.
  void keep_resting() {
    if constexpr (may_verify)
      if (verifies(optimizer().steps() + 1)) resting_->keep();
  }

  /// Reports the oldest queued step; waits for the device.
  void report() {
    const std::int64_t behind = queued_.size() - 1;
    const device::StepDecision found = optimizer().control().decision(behind);
    const double flops = model_.flops(options_.batch_size * options_.seq_len, queued_.oldest().counts.squares);
    queued_.report(found, optimizer().control().norms_apart(behind), flops, training_.peak_bytes(), peak_);
  }
  void report_all() {
    while (!queued_.empty()) report();
  }

  std::optional<double> validate_now() {
    report_all();
    const std::optional<double> held_out = source_.validation() > 0 ? held_out_loss() : std::nullopt;
    if (stopped_ != 0) return std::nullopt;
    if (const auto sample = samples_.write(optimizer().steps())) log_.sample(*sample);
    return held_out;
  }

  /// Returns nothing if a signal ended it.
  std::optional<double> held_out_loss() {
    const auto held_out = data::evenly_spread(source_.training(), source_.validation(), options_.validation_windows);
    const MeanLoss mean = mean_loss(
        training_.executor(), communicator_, training_.held_out_counts(), held_out_batch_, size_.sequences, held_out,
        [&] { return signals_.asked(); },
        [&](std::int64_t seen, std::int64_t all) {
          log_.progress(message("step ", optimizer().steps(), "  held-out loss: ", seen, " of ", all, " windows"));
        },
        options_.sequence.ranks);
    if ((stopped_ = mean.stop) != 0) return std::nullopt;
    require<DivergedError>(std::isfinite(mean.loss), "step ", optimizer().steps(), ": the held-out loss is ",
                           std::abs(mean.loss), "; nothing was saved. Lower --lr, or look at the held-out data");
    log_.held_out({.step = optimizer().steps(), .validation_loss = mean.loss, .tokens = mean.tokens}, loss_unit());
    held_out_ = mean.loss;
    validated_step_ = optimizer().steps();
    if (early_stop_.improves(mean.loss, validated_step_)) save();
    return mean.loss;
  }

  const char* answer_to_stop() const {
    return options_.checkpoint_dir && options_.on_signal == OnSignal::save
               ? "saves after this step; once more ends without saving"
               : "ends after this step; once more ends at once";
  }
  /// Ends a run that was asked to, with all that was done so far.
  int stop(int signal) {
    if (options_.on_signal == OnSignal::save)
      save();
    else
      report_all();
    trace_.write();
    if (leads()) {
      const std::string kept =
          saved() ? checkpoints_.path()
                  : std::string(options_.on_signal == OnSignal::save ? "nothing is saved without --checkpoint-dir"
                                                                     : "not saved (--on-signal stop)");
      log_.stopped(message(comm::name_of_stop(signal), signal == SIGPIPE ? " (nobody reads stdout any more)" : "",
                           ": ended after step ", optimizer().steps(), ": ", kept));
    }
    return 128 + signal;
  }
  void save_as_asked(std::int64_t asked) {
    saves_asked_ = asked;
    if (!options_.checkpoint_dir) log_.line("SIGUSR1: nothing is saved without --checkpoint-dir");
    save();
  }

  void save() {
    report_all();
    if (saved()) return;
    checkpoints_.save(training_, state());
    if (saved()) log_.line("checkpoint " + checkpoints_.path());
  }

  int finish() {
    const std::optional<double> held_out = validated_step_ == optimizer().steps() ? held_out_ : validate_now();
    if (stopped_ != 0) return stop(stopped_);
    save();
    trace_.write();
    if (early_stop_.due()) {
      const checkpoint::BestLoss& best = *early_stop_.best();
      log_.line(message("step ", optimizer().steps(), ": ended, since ", best.worse,
                        " held-out losses in a row were no lower than that of step ", best.step, ", ", best.loss));
    }
    const comm::MeshTraffic traffic = training_.traffic();
    const std::optional<report::StepTimes> step = queued_.meter().mean();
    const std::optional<report::Straggler> slowest = straggler(communicator_, step);
    log_.end({.steps = optimizer().steps(),
              .loss = queued_.loss(),
              .validation_loss = held_out,
              .unit = nn::unit_of<typename Model::Batch>(),
              .tokens = queued_.tokens(),
              .seconds = seconds_since(start_),
              .first_step_seconds =
                  queued_.first_done() ? std::optional(seconds_between(start_, *queued_.first_done())) : std::nullopt,
              .step = step,
              .planned = planned_,
              .straggler = slowest,
              .peak_bytes = training_.peak_bytes(),
              .checkpoint = checkpoints_.path(),
              .traffic = traffic});
    return 0;
  }

  /// Traces tasks and, on an asynchronous device, looks for the end of the step before. A host asks for no event while
  /// a graph is captured; a step that is one launch does not keep it from the report either.
  Observer observer() {
    Observer watch{.state = this};
    if (trace_.on())
      watch.before = [](void* self, const sharding::Task&) {
        static_cast<Trainer*>(self)->event_begin_ = Clock::now();
      };
    if (trace_.on() || (Device::asynchronous && !options_.cuda_graphs))
      watch.after = [](void* self, const sharding::Task& task) { static_cast<Trainer*>(self)->after(task); };
    return watch;
  }
  void after(const sharding::Task& task) {
    if (trace_.on()) trace(task);
    if (!options_.cuda_graphs && queued_.looks_for_oldest() && optimizer().control().decided())
      queued_.see_oldest_done();
  }
  void trace(const sharding::Task& task) {
    const int rank = communicator_.rank();
    auto& module = training_.module();
    trace_.add(report::trace_event(task, rank, seconds_between(start_, event_begin_), seconds_since(event_begin_)));
    trace_.add(report::memory_event(module.ledger().current(), module.arena().used(), rank, seconds_since(start_)));
  }

  comm::CatchSignals signals_{comm::CatchSignals::Later()};  ///< until the first step, a stop ends the process
  Clock::time_point start_ = Clock::now();
  Clock::time_point event_begin_;
  Comm& communicator_;
  const TrainOptions& options_;
  Model model_;
  const Source& source_;
  report::Trace trace_;
  std::string stack_text_;
  std::string data_;            ///< identity of the data, compared over ranks and on resume
  int pieces_;                  ///< of a step, on any number of ranks; 0: one for each micro-batch of each rank
  std::string reduced_sooner_;  ///< see reduced_sooner
  StepSize size_;
  std::optional<report::StepTimes> planned_;
  report::MatmulPeak peak_;  ///< measured before training_ allocates: its memory is not part of the plan
  Training<Model, Optimizer> training_;
  std::optional<Verification<Model>> verification_;  ///< with --verify-every
  std::optional<RestingDigests<Model, typename Training<Model, Optimizer>::Optimizer>> resting_;
  Feed<Comm, Source> feed_;
  Batches<Source> held_out_batch_;
  Samples samples_;
  EarlyStop early_stop_;
  RunLog log_;
  QueuedSteps queued_;
  RunCheckpoints checkpoints_;
  std::optional<double> held_out_;    ///< the one measured last
  std::int64_t validated_step_ = -1;  ///< the step after which it was measured
  std::int64_t saves_asked_ = 0;      ///< saves that signals asked for, and that are done
  int stopped_ = 0;                   ///< the signal that ended a validation
};

}  // namespace fsdp::train
