// SPDX-License-Identifier: Apache-2.0
/// @file
/// The Engine of a model, a source and an optimizer.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <chrono>
#include <concepts>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/comm/launch/signals.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/shards_io.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/device/compute/cpu.hpp>
#include <tessera/fsdp/model_files/load.hpp>
#include <tessera/fsdp/models/model.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/fsdp/verification/step_watch.hpp>
#include <tessera/fsdp/verification/verification.hpp>
#include <tessera/trainer/data/source.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/generate/samples.hpp>
#include <tessera/trainer/report/matmul_peak.hpp>
#include <tessera/trainer/report/report.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/feed.hpp>
#include <tessera/trainer/run/planned_step.hpp>
#include <tessera/trainer/run/run_checkpoints.hpp>
#include <tessera/trainer/run/run_log.hpp>
#include <tessera/trainer/run/run_record.hpp>
#include <tessera/trainer/run/step_times.hpp>
#include <tessera/trainer/run/stream_tensors.hpp>

namespace fsdp::train {

/// An engine trains a run, or replays one of its steps, with digests and without performance figures.
enum class EngineUse : std::uint8_t { trains, replays };

/// Trains a model on a source: draws samples, exchanges counts, enqueues steps.
template <fsdp::Model Model, data::Source Source, class Optimizer = optim::RunTimeOptimizer>
requires std::same_as<typename Source::Batch, typename Model::Batch>
class EngineOf final : public Engine {
 public:
  using Stack = typename Model::Stack;
  using Comm = typename Stack::Comm;
  using Device = typename Stack::Device;
  using Compute = typename Stack::Precision::Compute;
  using Sharding = typename Stack::Sharding;
  using Tiling = typename Stack::Tiling;
  static_assert(check_model<Model>() && data::check_source<Source>());

  /// Plans a step and allocates its memory. Collective; throws InputError on all ranks if data or arithmetic differ.
  /// Options, source, communicator and watch must outlive this object. `size`: train::step_size of the options.
  EngineOf(Comm& communicator, const TrainOptions& options, const Model& model, const Source& source,
           const Sharding& sharding, const Tiling& tiling, const Optimizer& optimizer, RunWatch& watch,
           const StepSize& size, EngineUse use = EngineUse::trains)
      : communicator_(communicator),
        ranks_(communicator),
        options_(options),
        model_(model),
        source_(source),
        watch_(watch),
        facts_(facts_before(sharding, tiling, optimizer, size, use)),
        training_(communicator, model_, facts_.size, sharding, tiling,
                  {.optimizer = optimizer,
                   .rules = {.clip = options.clip, .skips_overflow = loss_scale_of(options).has_value()},
                   .graphs = facts_.graphs,
                   .observer = observer()}),
        feed_(training_.module().sequence_group(), training_.counts(), source,
              data::sampler_of(source, options.seed, options.batch_size), facts_.size.sequences,
              facts_.size.micro_batches, static_cast<int>(facts_.start.pieces), signals_),
        held_out_batch_(source, facts_.size.sequences, 1, device::host_memory<Device>) {
    complete_facts(sharding, tiling);
    if (facts_.size.digests || facts_.size.verifies) step_watch_.emplace(training_.module(), training_.executor());
    if (!facts_.size.verifies) return;
    if constexpr (may_verify) {
      verification_.emplace(training_.module(), training_.executor(), *step_watch_);
      resting_.emplace(training_.module(), training_.optimizer());
    }
  }

  const comm::Ranks& ranks() const override { return ranks_; }
  const EngineFacts& facts() const override { return facts_; }

  void initialize(std::uint64_t seed, bool adapters_alone) override {
    optim::initialize(training_.module(), seed,
                      adapters_alone ? optim::Initialized::adapters : optim::Initialized::all);
  }
  void load(const checkpoint::ModelFiles& files) override { load_weights(training_.module(), files); }
  void restore(const checkpoint::Checkpoint& from) override {
    train::restore(training_.module(), training_.optimizer(), from);
  }
  void require_finite() override { train::require_finite(training_.module(), training_.optimizer()); }
  void write(checkpoint::Save& file) override { write_shards(training_.module(), training_.optimizer(), file); }

  std::int64_t steps() override { return training_.optimizer().steps(); }
  std::int64_t skipped() override { return training_.optimizer().control().skipped(); }
  data::Position position() const override { return feed_.position(); }
  void seek(const data::Position& position) override { feed_.restore(position); }

  const StepResults& step(const device::StepInputs& inputs, bool more) override {
    const std::int64_t number = steps() + 1;
    if constexpr (may_verify)
      if (verifies(number) && !resting_->kept()) resting_->keep();  // before the first step: the state after loading
    double in_collectives = 0;
    if constexpr (!Device::asynchronous) in_collectives = collective_seconds(training_.module());
    const auto batch = feed_.take(more);
    StepResults& step = queued_.emplace_back();
    step.counts = batch.counts;
    const auto scale = static_cast<float>(inputs.loss_scale / step.targets());
    const auto before_update = [&] {
      if (tensors_ != nullptr)
        return with_disk([&] { write_stepped(training_.module(), StepDigest::Kind::gradient, *tensors_); });
      if constexpr (may_verify) {  // throws CorruptionError on all ranks, so that nothing is saved
        resting_->compare(number - 1);
        verification_->verify(number, scale, [&](int piece) { return feed_.piece(piece); });
      }
    };
    std::function<void()> before;
    if (tensors_ != nullptr || verifies(number)) before = before_update;
    const comm::MeshTraffic traffic_before = training_.traffic();
    const std::int64_t tokens = options_.batch_size * options_.seq_len;
    const bool alike = batch.counts.valid_targets == tokens && batch.counts.squares == tokens * options_.seq_len;
    training_.queue(batch.micro_batches, scale, inputs, alike, before);
    step.traffic = training_.traffic() - traffic_before;
    if constexpr (!Device::asynchronous)
      step.collective_seconds = collective_seconds(training_.module()) - in_collectives;
    if (tensors_ != nullptr) end_streams();
    if (facts_.size.digests) step.digests = step_watch_->steps()->collect();
    step.flops = model_.flops(tokens, batch.counts.squares);
    if constexpr (may_verify)
      if (verifies(number + 1)) resting_->keep();
    return step;
  }

  StepResults results() override {
    require(!queued_.empty(),
            "engine: results were requested, and no step is enqueued whose results are missing; call step before");
    StepResults step = std::move(queued_.front());
    queued_.pop_front();
    const std::int64_t behind = std::ssize(queued_);
    auto& control = training_.optimizer().control();
    step.decision = control.decision(behind);
    step.norms_apart = control.norms_apart(behind);
    step.peak_bytes = training_.peak_bytes();
    return step;
  }
  comm::SignalRequests asked() override { return feed_.asked(); }
  comm::MeshTraffic traffic() override { return training_.traffic(); }
  std::int64_t peak_bytes() const override { return training_.peak_bytes(); }

  HeldOutBatch evaluate(std::span<const std::int64_t> samples, const comm::SignalRequests& asked) override {
    return evaluate_batch(training_.executor(), training_.held_out_counts(), held_out_batch_,
                          training_.module().sequence_group(), samples, asked);
  }
  std::vector<float> logits(std::span<const std::int32_t> tokens, std::int64_t row) override {
    if constexpr (writes_text<Model>)
      return logits_of<Compute>(tokens, facts_.size.sequences, 1, facts_.vocabulary, [&](auto& batch, auto& out) {
        training_.executor().evaluate_logits(batch, {&row, 1}, out);
      });
    else
      throw Error("engine: this model writes no text");
  }

  report::StepShapes shapes() override {
    return step_shapes(training_.module(), facts_.pieces, facts_.size.sequences * facts_.size.sequence_length);
  }
  void show_next(report::StepTensors& tensors) override {
    tensors_ = &tensors;
    if (!std::exchange(sees_streams_, true)) training_.executor().watch({.see = see_stream, .state = this});
  }
  void write_weights(report::StepTensors& tensors) override {
    with_disk([&] { write_stepped(training_.module(), StepDigest::Kind::weights, tensors); });
    with_disk([&] { tensors.finish(); });
  }

 private:
  using Watched = Training<Model, Optimizer, WatchedSteps>;
  static constexpr bool may_verify = StepWatch<Model>::may_verify;

  /// The facts known before the step's memory is allocated: measuring the peak allocates memory outside the plan.
  EngineFacts facts_before(const Sharding& sharding, const Tiling& tiling, const Optimizer& optimizer,
                           const StepSize& size, EngineUse use) {
    EngineFacts facts;
    facts.start.stack = stack_text(communicator_, policy_texts<Stack>(sharding, tiling), options_.sequence);
    data_ = agreed_data(ranks_, options_, model_.config().write(), source_);
    facts.start.pieces = sharding::facts_of(sharding).pieces;
    facts.reduced_sooner = reduced_sooner(sharding);
    facts.size = size;
    const int threads = comm::rank_threads(size.threads, ranks_.size());
    if (facts.start.pieces > 0) agree_on_last_bits(ranks_, last_bits<Device>(threads));
    if (use == EngineUse::replays) {
      facts.size.digests = true;
      return facts;
    }
    const std::string queued = why_queued();
    facts.graphs = queued.empty();
    if constexpr (device::Captures<Device>)
      facts.steps = facts.graphs ? "steps are graphs" : "steps are queued: " + queued;
    facts.start.planned =
        expected_step(ranks_, options_, model_, sharding, tiling, most_loaded_request(size, ranks_.size(), optimizer),
                      optimizer, [&] { return mean_document_length(source_, device::host_memory<Device>); });
    facts.peak = report::measure_matmul_peak<Device, Compute>(ranks_, threads);
    return facts;
  }
  /// Returns why steps are not captured as graphs; empty if they are. On request (--cuda-graphs on) they are, or
  /// TrainingStep throws. A graph repeats the captured step's random numbers. Collectives in graphs have not run on
  /// several GPUs yet.
  std::string why_queued() const {
    if (options_.cuda_graphs != CudaGraphs::automatic)
      return options_.cuda_graphs == CudaGraphs::on ? "" : "--cuda-graphs off";
    if constexpr (!device::Captures<Device>) return "the device has no graphs";
    if constexpr (requires { Device::can_capture(); })
      if (!Device::can_capture()) return "this is a debug build";
    if constexpr (requires { model_.draws_random_numbers(); }) {
      if (model_.draws_random_numbers()) return "the model draws random numbers";
    } else {
      return "the model may draw random numbers";
    }
    if (ranks_.size() > 1) return "several ranks";
    return options_.digests ? "--digests reads each step's tensors" : steps_differ(options_);
  }
  void complete_facts(const Sharding& sharding, const Tiling& tiling) {
    auto& module = training_.module();
    auto& optimizer = training_.optimizer().optimizer();
    report::StartRecord& start = facts_.start;
    start.model_name = model_name<typename Model::Config>(options_.model);
    start.sizes = values_of(model_.config());
    start.optimizer = std::string(std::string_view(optimizer.name()));
    start.constants = values_of(optimizer);
    start.groups = values_of_groups(options_.units.groups);
    start.seed = options_.seed;
    start.world = ranks_.size();
    start.ranks_per_sequence = options_.sequence.ranks;
    start.threads = training_.request().shape.threads();
    start.library = communicator_.monitor().library;
    if (!module.exchanges_sums() && options_.launch.reductions == Reductions::deterministic)
      facts_.lost_promise = communicator_.monitor().lost_promise;
    start.instruction_set = device::arithmetic();
    start.parameters = parameter_count(model_);
    start.trained = trained_count(model_);
    start.steps = options_.steps;
    start.parts = training_.plan().parts;
    if constexpr (data::detail::has_skipped_binary<Source>()) start.skipped_binary = source_.skipped_binary();
    facts_.source = source_.text();
    facts_.training = source_.training();
    facts_.validation = source_.validation();
    facts_.unit = nn::unit_of<typename Model::Batch>();
    if constexpr (nn::detail::has_loss_unit<typename Model::Batch>()) facts_.loss_unit = Model::Batch::loss_unit;
    facts_.residency = report::residency_text(module.residency());
    facts_.planned_bytes = training_.plan().peak_bytes();
    facts_.host_bytes = training_.plan().offloaded_bytes;
    facts_.model = {.listing = checkpoint::listing_of(module.model()),
                    .states = states_of(module, optimizer),
                    .read = checkpoint::read_listing_with<Model>({}),
                    .read_first = checkpoint::read_listing_with<Model>(options_.model.adapter)};
    facts_.record = run_record(options_, model_, sharding, tiling, optimizer, training_.request(), start.stack, data_);
    facts_.names_folder = is_folder<typename Model::Config>(options_.model);
    facts_.asynchronous = Device::asynchronous;
    if constexpr (writes_text<Model>) facts_.vocabulary = model_.head().logits_columns();
    facts_.pieces =
        start.pieces > 0 ? static_cast<int>(start.pieces) : module.sequence_group().count * facts_.size.micro_batches;
  }

  bool verifies(std::int64_t step) const { return verification_ && step % options_.verify_every == 0; }
  /// Returns an observer that traces tasks and, on an asynchronous device, polls for the end of the previous step: if
  /// the device's queue is full, enqueueing takes as long as execution. With CUDA graphs it does not poll: the host
  /// must not query events during capture, and a step of one launch does not delay the report.
  Observer observer() {
    Observer watch{.state = this};
    if (watch_.traces())
      watch.before = [](void* self, const sharding::Task&) { static_cast<EngineOf*>(self)->watch_.before(); };
    if (watch_.traces() || (Device::asynchronous && !facts_.graphs))
      watch.after = [](void* self, const sharding::Task& task) { static_cast<EngineOf*>(self)->after(task); };
    return watch;
  }
  void after(const sharding::Task& task) {
    auto& module = training_.module();
    if (watch_.traces()) watch_.after(task, module.ledger().current(), module.arena().used());
    const bool looks = !facts_.graphs && queued_.size() > 1 && !queued_.front().done;
    if (looks && training_.optimizer().control().decided()) queued_.front().done = std::chrono::steady_clock::now();
  }

  void with_disk(FunctionRef<void()> f) {
    detail::together_with_disk_deadline(ranks_, options_.launch.disk_deadline_seconds, "replay (--disk-deadline)",
                                        "--tensors", f);
  }
  static void see_stream(void* state, const sharding::Task& task, Tensor<const Compute> values) {
    EngineOf& own = *static_cast<EngineOf*>(state);
    if (own.tensors_ == nullptr || own.stream_error_) return;
    try {
      write_stream(own.training_.module(), task, values, *own.tensors_);
    } catch (...) {  // the other ranks are in the pass and wait for this rank
      own.stream_error_ = std::current_exception();
    }
  }
  void end_streams() {
    tensors_ = nullptr;
    comm::together(ranks_, "--tensors", [&] {
      if (stream_error_) std::rethrow_exception(stream_error_);
    });
  }

  comm::CatchSignals signals_{comm::CatchSignals::Later()};  ///< for the feed
  Comm& communicator_;
  comm::Ranks ranks_;
  const TrainOptions& options_;
  Model model_;
  const Source& source_;
  RunWatch& watch_;
  std::string data_;  ///< identity of the data, compared between ranks and on resume
  EngineFacts facts_;
  Watched training_;
  std::optional<StepWatch<Model>> step_watch_;       ///< set with --digests and --verify-every
  std::optional<Verification<Model>> verification_;  ///< set with --verify-every
  std::optional<RestingDigests<Model, typename Watched::Optimizer>> resting_;
  Feed<Comm, Source> feed_;
  Batches<Source> held_out_batch_;
  std::deque<StepResults> queued_;          ///< results of the enqueued steps; not returned yet
  bool sees_streams_ = false;               ///< whether see_stream was added to the executor's hooks
  report::StepTensors* tensors_ = nullptr;  ///< destination of the next step's tensors; null: none are written
  std::exception_ptr stream_error_;         ///< the first exception of this rank during a pass
};

}  // namespace fsdp::train
