// SPDX-License-Identifier: Apache-2.0
/// @file
/// Computes a model in the passes of its ShardedModule.
///
/// The placed schedule determines which slot a group occupies, and for which interval.
///
/// On an asynchronous device, collectives and copies to host memory run on separate queues, concurrently with the
/// compute stream, ordered by one event per dependency; the host enqueues a whole pass without waiting. A pass begins
/// and ends on the compute stream: other queues wait for an event that is recorded at its start, and the compute stream
/// waits for all of them at its end. No event is used outside the pass that recorded it, so that a pass can be captured
/// as a graph.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/device.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/execution/pass_data.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/execution/step_hooks.hpp>
#include <tessera/fsdp/execution/unit_computation.hpp>
#include <tessera/fsdp/execution/unit_streams.hpp>
#include <tessera/fsdp/module/pass.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/one_of.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// Runs the passes of a sharded model, one at a time. The file comment describes the queues.
template <class Model>
class Executor {
 public:
  using Module = ShardedModel<Model>;
  using Stack = typename Module::Stack;
  using Local = typename Module::Local;
  using Device = typename Module::Device;
  using Compute = typename Module::Compute;
  using Hooks = StepHooks<Compute>;
  using Batch = typename Model::Batch;
  using Block = typename Model::Block;
  using UploadedBatches = Uploaded<Batch, Local>;
  using Computation = UnitComputation<UnitTypes<typename Model::Entry, Block, typename Model::Head, Batch>, Local>;
  using Stages = typename SequencesOf<Model>::template Stages<Module>;
  static_assert(nn::check_batch_parts<Batch>());
  static_assert(nn::parts_of_all_kinds<Block, Local>);
  static_assert(nn::check_head_parts<typename Model::Head, Local>());
  /// Whether the head computes logits, and whether blocks also have caches from which sequences can be continued.
  /// @{
  static constexpr bool generates = Computation::generates;
  static constexpr bool continues = Computation::continues;
  /// @}

  /// `module` must outlive it. `observer`: watches the tasks of all passes.
  explicit Executor(Module& module, const Observer& observer = {})
      : module_(module),
        offloaded_inputs_(module.offload_arena(), module.stream(), module.planned(sharding::Pass::train).problem),
        computation_(made_computation()),
        stages_(module, computation_.blocks()),
        loss_block_(module.ledger(), device::MemoryKind::scratch,
                    losses_of(module.size()) * std::int64_t{sizeof(double)}),
        loss_(reinterpret_cast<double*>(loss_block_.data()), {module.size().micro_batches}),
        loss_on_host_(module.size().micro_batches) {
    context().poll = [](void* pass) { static_cast<Pass<Stack>*>(pass)->progress(); };
    if (observer.before != nullptr || observer.after != nullptr)
      watch({.before = observer.before, .after = observer.after, .state = observer.state});
  }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs forward and backward of all micro-batches. Computes the gradients of scale * (sum of the valid targets'
  /// losses over all ranks and micro-batches) and returns this rank's part of that sum, unscaled.
  double train(std::span<const Batch> micro_batches, float scale) {
    queue_training(micro_batches, scale);
    return read_loss();
  }
  /// The non-blocking form of `train`; the batches' memory must stay valid until the device has read it. `verified`:
  /// whether the first micro-batch is digested, for comparison with a repetition.
  void queue_training(std::span<const Batch> micro_batches, float scale, bool verified = false) {
    queue(upload(micro_batches), scale, verified);
  }

  /// The first half of queue_training: copies micro-batches to memory that the device can read. Throws InputError if
  /// the model cannot use a micro-batch, or if the number of its tokens is not its number of sequences times the
  /// planned length. Ranks that share sequences must all pass the same whole micro-batches.
  [[nodiscard]] UploadedBatches upload(std::span<const Batch> micro_batches) {
    if constexpr (Stages::possible) stages_.see_whole(context());
    const std::int64_t length = context().sequence_length;
    for (const Batch& batch : micro_batches)
      if constexpr (requires { batch.tokens.numel(); })
        require<InputError>(batch.tokens.numel() == batch.sequences * length, "batch: ", batch.tokens.numel(),
                            " tokens of ", batch.sequences, " sequences, and passes were planned for sequences of ",
                            length, "; give them that length, or plan with another StepSize::sequence_length");
    if constexpr (!Device::counts_only)
      for (const Batch& batch : micro_batches) module_.model().validate(batch, length);
    if constexpr (Stages::possible)
      if (stages_.on()) return {context(), stages_.parts_of(micro_batches)};
    return {context(), micro_batches};
  }
  /// The second half of queue_training: enqueues the pass. Batches with equal patterns and an equal `scale` enqueue
  /// identical work.
  void queue(const UploadedBatches& micro_batches, float scale, bool verified = false) {
    require(static_cast<int>(micro_batches.size()) == module_.own_micro_batches(), "train: ", micro_batches.size(),
            " micro-batches given to a module planned for ", module_.own_micro_batches());
    require(!verified || module_.size().verifies,
            "train: a step is to be verified, of a module that is not planned to verify");
    check_watched(module_.size(), hooks_.watches_steps());
    hooks_.call(&Hooks::begin, verified ? TrainingPass::verified_step : TrainingPass::step);
    run(sharding::Pass::train, micro_batches, {.scale = scale, .losses = loss_});
  }
  /// Returns this rank's loss sums of the last pass, on the device: one for each micro-batch that the module is planned
  /// for.
  Tensor<const double> loss() const { return loss_; }

  /// Returns the tiling plans of the modules. The plans of a dry run are passed to the run that follows
  /// (RunShape::plans).
  std::shared_ptr<const nn::TilePlans> plans() const { return computation_.context().plans; }

  /// Calls `hooks` in all later passes, after those that were added before. Their state must outlive the passes.
  void watch(const Hooks& hooks) { hooks_.add(hooks); }
  /// Returns the hooks. Whoever updates weights calls their `after_pass` and `after_update`; TrainingStep does.
  const StepHookList<Compute>& hooks() const { return hooks_; }

  /// Recomputes at most one micro-batch without changing the step's gradients and losses, so that its digests can be
  /// compared with the digests of a step's first micro-batch on some rank. The module must be planned for it
  /// (StepSize::verifies). Collective.
  void repeat(const UploadedBatches& micro_batch, float scale) {
    require(micro_batch.size() <= 1, "repeat: ", micro_batch.size(), " micro-batches are given; one at most");
    require(module_.size().verifies, "repeat: the module is not planned to verify");
    check_watched(module_.size(), hooks_.watches_steps());
    hooks_.call(&Hooks::begin, TrainingPass::repetition);
    const Tensor<double> spare_loss(loss_.data() + loss_.numel(), {1});
    run(sharding::Pass::train, micro_batch, {.scale = scale, .losses = spare_loss}, Reductions::left_out);
  }

  /// Returns the sum of the valid targets' losses on this rank.
  double evaluate(const Batch& batch) {
    run(sharding::Pass::evaluate, upload({&batch, 1}), {.losses = loss_});
    return read_loss();
  }

  /// Computes the logits [rows, V] of some rows of a batch with the pass of `evaluate`: each unit's weights are
  /// resharded after use, so that a training module can compute logits. The plan must have room for that many rows
  /// (StepSize::logit_rows).
  void evaluate_logits(const Batch& batch, std::span<const std::int64_t> rows,
                       Tensor<Compute> out) requires(generates) {
    require(!rows.empty(), "evaluate_logits: no row is asked for");
    make_logits(sharding::Pass::evaluate, batch, rows, out);
  }

  /// Computes the logits [T, V] of one sequence. Weights are gathered once and stay gathered. Targets are not read.
  void logits(const Batch& batch, Tensor<Compute> out) requires(generates) { logits(batch, {}, out); }
  /// Computes the logits [rows, V] of some rows of a batch, or of all rows if `rows` is empty. The plan must have room
  /// for that many rows (StepSize::logit_rows). If the module is planned for it (StepSize::cached_rows), blocks
  /// fill the caches that next_logits reads.
  void logits(const Batch& batch, std::span<const std::int64_t> rows, Tensor<Compute> out) requires(generates) {
    using sharding::Pass;
    make_logits(std::exchange(has_generated_, true) ? Pass::generate_again : Pass::generate, batch, rows, out);
  }
  /// Computes the logits [sequences, V] of one more token per sequence, at `positions` [sequences]. `logits` or
  /// next_logits must have processed the earlier tokens.
  void next_logits(const Batch& batch, std::span<const std::int32_t> positions,
                   Tensor<Compute> out) requires(continues) {
    require(!computation_.cache().empty(),
            "next_logits: the module keeps nothing of sequences; plan it with cached_rows");
    require(std::ssize(positions) == batch.sequences, "next_logits: ", positions.size(), " positions for ",
            batch.sequences, " sequences");
    const OneTokenEach one_token(context(), positions);
    logits(batch, {}, out);
  }

 private:
  nn::Context<Local>& context() { return computation_.context(); }

  Computation made_computation() {
    const Model& model = module_.model();
    std::vector<Block> blocks = all_blocks(model);
    typename Computation::Cache cache(module_.ledger(), blocks, module_.size().cached_rows);
    return {{.arena = module_.arena(),
             .stream = module_.stream(),
             .plans = nn::shared_plans(*module_.shape().plans),
             .sequence_length = module_.size().sequence_length},
            model.entry(),
            std::move(blocks),
            model.head(),
            std::move(cache),
            {model.hidden(), offloaded_inputs_.any() ? &offloaded_inputs_ : nullptr},
            hooks_};
  }
  static std::vector<Block> all_blocks(const Model& model) {
    std::vector<Block> blocks;
    for (int i = 0; i < model.blocks(); ++i) {
      blocks.push_back(model.block(i));
      nn::visit_kind(blocks.back(), [&]<class Kind>(const Kind&) {
        require<InputError>(model.units().offload_inputs == 0 || saves_its_input<Kind, Compute>,
                            "units: inputs of blocks in host ", "memory are asked for, and block ", i,
                            " of this model saves more than its input; make it an nn::Recomputed");
      });
    }
    return blocks;
  }
  static std::int64_t losses_of(const StepSize& size) { return size.micro_batches + (size.verifies ? 1 : 0); }

  void make_logits(sharding::Pass pass, const Batch& batch, std::span<const std::int64_t> rows, Tensor<Compute> out) {
    if constexpr (Stages::possible)
      require<InputError>(!stages_.on(), "logits: ", stages_.ranks(),
                          " ranks share each sequence, and logits are made of whole ones; let one rank have each");
    const Batch read = nn::for_logits(batch);
    run(pass, upload({&read, 1}), {.losses = loss_, .makes_logits = true, .logits = out, .rows = rows});
    module_.synchronize();
  }

  /// Executes the tasks of a pass and computes its units.
  void run(sharding::Pass pass, const UploadedBatches& micro_batches, const PassInput<Compute>& input,
           Reductions reductions = Reductions::made) {
    const int planned = reductions == Reductions::made ? 0 : 1;  // number of micro-batches; 0 for the module's number
    Pass<Stack> tasks(module_, pass, 0, planned, observer(), reductions, activation_work());
    const typename Device::Arena::Scope taken(context().arena);
    context().poll_state = &tasks;
    begin_pass(pass, micro_batches, input);
    while (const std::optional<sharding::Task> next = tasks.next()) {
      if (next->micro_batch >= static_cast<int>(micro_batches.size())) {
        tasks.skip();
        continue;
      }
      Use<Stack> use = tasks.enter();
      {
        const auto unit = Computation::Unit::of(use);
        const device::ProfilerRange<Device> range([&] { return text_of(unit.task, module_.names()); });
        if (unit.task.index == 0 && unit.task.action == sharding::Action::forward)
          begin_micro_batch(micro_batches[unit.task.micro_batch]);
        if (!computes_stage(unit)) computation_.compute(unit);
      }
      use.done();
    }
    tasks.finish();
  }
  void begin_pass(sharding::Pass pass, const UploadedBatches& micro_batches, PassInput<Compute> input) {
    device::enqueue(context().stream, device::Fill<double>{.y = input.losses, .value = 0.0f});
    if constexpr (Stages::possible) stages_.begin_pass(context());
    input.trains = pass == sharding::Pass::train;
    input.first_backward = module_.first_backward();
    input.micro_batches = micro_batches.size();
    input.sequences = micro_batches.most_sequences();
    computation_.begin_pass(input);
  }
  void begin_micro_batch(const typename UploadedBatches::MicroBatch& batch) {
    if constexpr (Stages::possible) stages_.see_whole(context());
    computation_.begin_micro_batch(batch);
    if constexpr (Stages::possible) stages_.begin_micro_batch(context());
  }

  /// Computes a unit's stage if several ranks share the sequence. Returns true if it has computed a stage.
  bool computes_stage(const typename Computation::Unit& unit) {
    if constexpr (Stages::possible)
      if (stages_.computes(unit.task)) {
        stages_.compute(computation_, unit);
        return true;
      }
    return false;
  }

  /// Returns the observer of a pass, which calls the hooks.
  Observer observer() {
    if (hooks_.empty()) return {};
    return {.before =
                [](void* list, const sharding::Task& task) {
                  static_cast<StepHookList<Compute>*>(list)->call(&Hooks::before, task);
                },
            .after =
                [](void* list, const sharding::Task& task) {
                  static_cast<StepHookList<Compute>*>(list)->call(&Hooks::after, task);
                },
            .state = &hooks_};
  }
  /// Returns the callbacks of the pass for tasks that move activations: copies of inputs, and exchanges between stages.
  ActivationWork activation_work() {
    ActivationWork work{
        .execute = [](void* self, const sharding::Task& task) { static_cast<Executor*>(self)->move_activations(task); },
        .state = this};
    if constexpr (Stages::possible)
      work.progress = [](void* self) { static_cast<Executor*>(self)->stages_.progress(); };
    return work;
  }
  void move_activations(const sharding::Task& task) {
    if constexpr (Stages::possible)
      if (task.action == sharding::Action::exchange) return stages_.exchange(task);
    offloaded_inputs_.execute(task);
  }

  double read_loss() {
    loss_on_host_.fetch(module_.stream(), loss_.data());
    module_.synchronize();
    const auto losses = loss_on_host_.values();
    return std::accumulate(losses.data(), losses.data() + losses.numel(), 0.0);
  }

  Module& module_;
  StepHookList<Compute> hooks_;
  OffloadedInputs<Device, Compute> offloaded_inputs_;
  Computation computation_;
  [[no_unique_address]] Stages stages_;
  bool has_generated_ = false;  ///< whether weights are still gathered from generation
  device::Block<Device> loss_block_;
  Tensor<double> loss_;  // [micro_batches]
  device::HostCopy<Device, double> loss_on_host_;
};

}  // namespace fsdp
