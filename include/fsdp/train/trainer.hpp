// SPDX-License-Identifier: Apache-2.0
/// @file
/// Training of one model on one rank: data, steps, metrics, validation, checkpoints.
///
/// The loop is the same on every rank; rank 0 speaks. What does not depend on the stack is ordinary code in src/.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/checkpoint/folder.hpp>
#include <fsdp/data/corpus.hpp>
#include <fsdp/data/sampler.hpp>
#include <fsdp/data/windows.hpp>
#include <fsdp/executor.hpp>
#include <fsdp/models/llama.hpp>
#include <fsdp/optim/adamw.hpp>
#include <fsdp/optim/initialize.hpp>
#include <fsdp/train/agree.hpp>
#include <fsdp/train/batches.hpp>
#include <fsdp/train/console.hpp>
#include <fsdp/train/dry_run.hpp>
#include <fsdp/train/launch.hpp>
#include <fsdp/train/metrics.hpp>
#include <fsdp/train/options.hpp>
#include <fsdp/train/report.hpp>
#include <fsdp/train/shards_io.hpp>
#include <fsdp/train/trace.hpp>
#include <fsdp/train/validation.hpp>

namespace fsdp::train {

/// What the dry run is asked for these options.
inline PlanRequest plan_request(const TrainOptions& options, int ranks, int threads) {
  return {.ranks = ranks,
          .rank = 0,
          .sequences = options.batch_size / (ranks * options.grad_accum),
          .shape = {.sequence_length = options.seq_len,
                    .micro_batches = static_cast<int>(options.grad_accum),
                    .threads = threads}};
}

template <class Model>
class Trainer {
 public:
  using Comm = typename Model::Stack::Comm;
  using Module = ShardedModule<Model>;

  Trainer(Comm& communicator, const TrainOptions& options, typename Model::Stack::Sharding sharding,
          typename Model::Stack::Tiling tiling)
      : communicator_(communicator),
        options_(options),
        model_(resolve_model(options), options.units),
        corpus_(paths(options.data)),
        windows_(corpus_, options.seq_len, options.validation_fraction, model_.config().vocab_size),
        sampler_(options.seed, windows_.training(), options.batch_size),
        request_(plan_request(options, communicator.size(), rank_threads(options.stack, communicator))),
        plan_(plan(model_, sharding, tiling, request_)),
        module_(communicator, model_, sharding, tiling, planned_shape()),
        optimizer_(module_, {.beta1 = options.beta1,
                             .beta2 = options.beta2,
                             .eps = options.eps,
                             .weight_decay = options.weight_decay,
                             .clip = options.clip}),
        trace_(options.trace.empty() ? std::filesystem::path() : trace_path(options.trace, communicator.rank())),
        executor_(module_, trace_.on() ? observer() : Observer{}),
        batches_(windows_, request_.sequences, request_.shape.micro_batches, options.document_separator) {
    loss_scale_ = loss_scale_of(options);
    if (leads()) require_writable(options.checkpoint_dir);
  }

  void run() {
    begin();
    for (std::int64_t step = optimizer_.steps; step < options_.steps; ++step) {
      train_step(step);
      if (due(options_.validation_every)) validate_now();
      if (due(options_.checkpoint_every)) save();
    }
    finish();
  }

 private:
  using Clock = std::chrono::steady_clock;

  static std::vector<std::filesystem::path> paths(const std::vector<std::string>& names) {
    return {names.begin(), names.end()};
  }
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  bool leads() const { return communicator_.rank() == 0; }
  bool due(std::int64_t every) const {
    return every > 0 && optimizer_.steps % every == 0 && optimizer_.steps < options_.steps;
  }
  RunShape planned_shape() const {
    RunShape shape = request_.shape;
    shape.activation_bytes = plan_.activation_bytes;
    shape.far_activation_bytes = plan_.far_activation_bytes;
    return shape;
  }
  std::int64_t peak_bytes() const {
    std::int64_t sum = 0;
    for (const std::int64_t part : module_.peak_bytes()) sum += part;
    return sum;
  }

  void begin() {
    const checkpoint::Warn warn = [&](const std::string& text) {
      if (leads()) std::fprintf(stderr, "tessera: warning: %s\n", text.c_str());
    };
    if (!options_.resume.empty())
      resume(checkpoint::Checkpoint::open(options_.resume, warn));
    else if (is_folder(options_.model))
      load_weights(module_, checkpoint::open_model(options_.model.name, warn).weights);
    else
      optim::initialize(module_, options_.seed);
    if (leads()) metrics_ = Metrics(options_.metrics);
    peak_ = measure_matmul_peak(communicator_, module_);
    if (!leads()) return;
    const StartRecord record{.stack = name_of(options_.stack),
                             .model_name = options_.model.name,
                             .model = model_.config(),
                             .seed = options_.seed,
                             .world = communicator_.size(),
                             .threads = request_.shape.threads,
                             .parameters = parameter_count(model_.config()),
                             .first_step = optimizer_.steps + 1,
                             .steps = options_.steps,
                             .skipped_binary = corpus_.skipped_binary()};
    metrics_.write(record);
    console_.emplace(stdout, style_of(stdout), optimizer_.steps + 1, options_.steps, options_.log_every);
    console_->line(start_text(record, corpus_.size(), static_cast<std::int64_t>(corpus_.files().size()),
                              windows_.training(), windows_.validation(), plan_.peak_bytes()));
  }

  void resume(const checkpoint::Checkpoint& from) {
    from.check_same_model(model_.config());
    const checkpoint::TrainerState& state = from.state();
    require<InputError>(state.seq_len == options_.seq_len && state.windows == windows_.training(), "--resume ",
                        from.path().string(), ": was trained on ", state.windows, " windows of ", state.seq_len,
                        " tokens, these data and flags give ", windows_.training(), " of ", options_.seq_len,
                        "; resume with the same --data, --seq-len and --validation-fraction");
    require<InputError>(state.seed == options_.seed, "--resume ", from.path().string(), ": the run's seed was ",
                        state.seed, "; resume with --seed ", state.seed);
    require<InputError>(state.step <= options_.steps, "--resume ", from.path().string(), ": is at step ", state.step,
                        " already; --steps ", options_.steps, " counts those of the whole run");
    train::restore(module_, optimizer_, from);
    sampler_.restore({.epoch = state.epoch, .index = state.index});
    tokens_ = state.tokens;
    if (loss_scale_ && state.loss_scale) loss_scale_ = DynamicLossScale(*state.loss_scale);
  }

  void train_step(std::int64_t step) {
    const auto begin = Clock::now();
    const BatchCounts counts = sum_counts(communicator_, [&] {
      batches_.draw(sampler_, communicator_.rank(), communicator_.size());
      return counts_of(batches_.micro_batches());
    });
    const auto [loss, norm] = loss_and_norm(step, static_cast<double>(std::max<std::int64_t>(counts.valid_targets, 1)));
    const double lr = lr_at(schedule_of(options_), step);
    optimizer_.step(lr, norm, gradient_scale_);
    sampler_.advance();
    const std::int64_t step_tokens = options_.batch_size * options_.seq_len;
    tokens_ += step_tokens;
    const double seconds = seconds_since(begin);
    last_loss_ = loss;
    if (!leads()) return;
    const double flops = model_flops(model_.config(), step_tokens, counts.squares);
    const StepRecord record{.step = step + 1,
                            .loss = loss,
                            .grad_norm = norm,
                            .loss_scale = loss_scale_ ? std::optional(gradient_scale_) : std::nullopt,
                            .lr = lr,
                            .tokens = tokens_,
                            .tokens_per_second = static_cast<double>(step_tokens) / seconds,
                            .step_seconds = seconds,
                            .peak_bytes = peak_bytes(),
                            .tflops = flops / seconds * 1e-12,
                            .mfu = flops / seconds / peak_.flops_per_second,
                            .mfu_peak = peak_.name};
    metrics_.write(record);
    console_->step(record);
  }

  struct LossAndNorm {
    double loss, norm;
  };

  /// Forward and backward; with a loss scale, again at a smaller one where gradients overflow on any rank. The norm is
  /// unscaled.
  LossAndNorm loss_and_norm(std::int64_t step, double targets) {
    for (;;) {
      gradient_scale_ = loss_scale_ ? loss_scale_->scale() : 1.0;
      const double sum = executor_.train(batches_.micro_batches(), static_cast<float>(gradient_scale_ / targets));
      const double loss = comm::sum_over_ranks(communicator_, sum, {"loss"}) / targets;
      const double norm = optim::gradient_norm(module_) / gradient_scale_;
      const bool finite = std::isfinite(norm);
      require<Error>(std::isfinite(loss) && (finite || loss_scale_), "step ", step + 1, ": loss is ", std::abs(loss),
                     " and the gradient norm is ", std::abs(norm),
                     "; stopped before any weight was touched. Lower --lr, or look at the data of this step");
      if (loss_scale_) loss_scale_->update(finite);
      if (finite) return {loss, norm};
      if (leads())
        console_->line(message("step ", step + 1, ": gradients overflow at loss scale ", gradient_scale_, "; again at ",
                               loss_scale_->scale()));
    }
  }

  std::optional<double> validate_now() {
    if (windows_.validation() == 0) return std::nullopt;
    const auto held_out = windows_.validation_windows(options_.validation_windows);
    const MeanLoss mean = mean_loss(executor_, communicator_, batches_, request_.sequences, held_out);
    if (leads()) {
      metrics_.write(ValidationRecord{.step = optimizer_.steps, .validation_loss = mean.loss, .tokens = mean.tokens});
      console_->line(message("step ", optimizer_.steps, "  held-out loss ", mean.loss, " nats per token over ",
                             mean.tokens, " tokens"));
    }
    return mean.loss;
  }

  void save() {
    if (options_.checkpoint_dir.empty()) return;
    std::uint64_t id = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    comm::broadcast(communicator_, std::as_writable_bytes(std::span(&id, 1)), 0, {"checkpoint"});
    checkpoint::Save save(options_.checkpoint_dir, optimizer_.steps, id, model_.config());
    const auto position = sampler_.position();
    const checkpoint::TrainerState state{
        .step = optimizer_.steps,
        .tokens = tokens_,
        .epoch = position.epoch,
        .index = position.index,
        .seed = options_.seed,
        .windows = windows_.training(),
        .seq_len = options_.seq_len,
        .schedule_steps = options_.steps,
        .loss_scale = loss_scale_ ? std::optional(loss_scale_->state()) : std::nullopt};
    const auto all = [&](bool ok) {
      std::int64_t every = ok ? 1 : 0;
      comm::reduce(communicator_, std::span<std::int64_t>(&every, 1), comm::Reduction::min, {"checkpoint"});
      return every == 1;
    };
    checkpoint::save(save, communicator_.rank(), state, all,
                     [&](checkpoint::Save& file) { write_shards(module_, optimizer_, file); });
    checkpoint_path_ = save.path().string();
    if (leads()) console_->line("checkpoint " + checkpoint_path_);
  }

  void finish() {
    const std::optional<double> held_out = validate_now();
    save();
    trace_.write();
    if (!leads()) return;
    const SummaryRecord record{.steps = options_.steps,
                               .loss = last_loss_,
                               .validation_loss = held_out,
                               .tokens = tokens_,
                               .seconds = seconds_since(start_),
                               .peak_bytes = peak_bytes(),
                               .checkpoint = checkpoint_path_};
    metrics_.write(record);
    console_->finish();
    std::printf("%s\n", summary_text(record).c_str());
  }

  Observer observer() {
    return {
        .before = [](void* self, const sharding::Event&) { static_cast<Trainer*>(self)->event_begin_ = Clock::now(); },
        .after =
            [](void* self, const sharding::Event& event) {
              auto& trainer = *static_cast<Trainer*>(self);
              trainer.trace_.add(
                  trace_event(event, trainer.communicator_.rank(),
                              std::chrono::duration<double>(trainer.event_begin_ - trainer.start_).count(),
                              seconds_since(trainer.event_begin_)));
            },
        .state = this};
  }

  Clock::time_point start_ = Clock::now();
  Clock::time_point event_begin_;
  Comm& communicator_;
  const TrainOptions& options_;
  Model model_;
  data::Corpus corpus_;
  data::Windows windows_;
  data::Sampler sampler_;
  PlanRequest request_;
  Plan plan_;
  Module module_;
  optim::AdamW<Model> optimizer_;
  Trace trace_;
  Executor<Model> executor_;
  Batches batches_;
  Metrics metrics_;
  std::optional<Console> console_;
  MatmulPeak peak_;
  std::optional<DynamicLossScale> loss_scale_;
  double gradient_scale_ = 1;  ///< of the last backward
  std::int64_t tokens_ = 0;
  std::optional<double> last_loss_;
  std::string checkpoint_path_;
};

}  // namespace fsdp::train
