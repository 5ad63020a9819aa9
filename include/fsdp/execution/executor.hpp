// SPDX-License-Identifier: Apache-2.0
/// @file
/// Computes a model in the passes of its ShardedModule.
///
/// Activations: what backward needs grows from the arena's low end, last in first out; the residual gradient [T, H] is
/// at the high end. The placed schedule says which slot a group has, and from when to when.
///
/// On an asynchronous device, collectives and copies to host memory run on their own queues beside the compute stream,
/// ordered by one event per dependency; the host enqueues a whole pass without waiting. A pass begins and ends on the
/// compute stream: other queues start after an event recorded at its begin, and the stream has waited for all of them
/// at its end. No event is used outside the pass that recorded it, so that a pass can be captured as a graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_copy.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/execution/offloaded_inputs.hpp>
#include <tessera/fsdp/execution/sequence_cache.hpp>
#include <tessera/fsdp/execution/sequence_stages.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/execution/step_watch.hpp>
#include <tessera/fsdp/execution/uploaded_batch.hpp>
#include <tessera/fsdp/module/pass.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/one_of.hpp>
#include <tessera/fsdp/nn/optional_parts.hpp>
#include <tessera/fsdp/nn/recomputed.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// Runs the passes of a sharded model, one at a time. See the head of this file for memory and queues.
template <class Model>
class Executor {
 public:
  using Module = ShardedModel<Model>;
  using Stack = typename Module::Stack;
  using Device = typename Module::Device;
  using Compute = typename Module::Compute;
  using Arena = typename Device::Arena;
  using End = typename Arena::End;
  using Batch = typename Model::Batch;
  /// Whether several ranks may share a sequence. Models whose blocks state no stages are refused where they are to
  /// (check_shared_sequences).
  static constexpr bool shards_sequences =
      Stack::Sequence::shards && nn::all_kinds_are_staged<typename Model::Block, typename Module::Local>;
  static_assert(nn::check_batch_parts<Batch>());
  static_assert(nn::parts_of_all_kinds<typename Model::Block, typename Module::Local>);
  static_assert(nn::check_head_parts<typename Model::Head, typename Module::Local>());
  using UploadedBatches = Uploaded<Batch, typename Module::Local>;
  using Cache = SequenceCache<Module, std::vector<typename Model::Block>>;
  /// Whether the head makes logits, and whether blocks also have caches from which sequences can be continued.
  /// @{
  static constexpr bool generates = nn::GeneratingHead<typename Model::Head, typename Module::Local>;
  static constexpr bool continues = generates && Cache::possible;
  /// @}

  /// `module` must outlive it.
  explicit Executor(Module& module, Observer observer = {})
      : module_(module),
        entry_(module.model().entry()),
        head_(module.model().head()),
        watch_(module, observer),
        context_{.arena = module.arena(),
                 .stream = module.stream(),
                 .plans = std::make_shared<nn::TilePlans>(*module.shape().plans)},
        blocks_(all_blocks(module.model())),
        cache_(module, blocks_),
        stages_(module, blocks_),
        saved_(blocks_.size()),
        marks_(blocks_.size()),
        offloaded_inputs_(module.offload_arena(), module.stream(), module.planned(sharding::Pass::train).problem),
        loss_block_(module.ledger(), device::MemoryKind::scratch,
                    losses_of(module.shape()) * std::int64_t{sizeof(double)}),
        loss_(reinterpret_cast<double*>(loss_block_.data()), {module.shape().micro_batches}),
        loss_on_host_(module.shape().micro_batches) {
    context_.sequence_length = module.shape().sequence_length;
    context_.poll = [](void* pass) { static_cast<Pass<Stack>*>(pass)->progress(); };
  }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Forward and backward of all micro-batches. The gradients are those of scale * (sum of the valid targets' losses
  /// over all ranks and micro-batches); this rank's part of that sum, unscaled, is returned.
  double train(std::span<const Batch> micro_batches, float scale) {
    queue_training(micro_batches, scale);
    return read_loss();
  }
  /// The same without waiting for the device; the batches' memory must stay until the device has read it.
  /// `verified`: the first micro-batch is digested, to be compared with a repetition.
  void queue_training(std::span<const Batch> micro_batches, float scale, bool verified = false) {
    queue(upload(micro_batches), scale, verified);
  }

  /// queue_training in two halves. This one puts micro-batches where the device reads them. Throws InputError if the
  /// model cannot use one, or its tokens are not those of its sequences at the planned length.
  /// Where several ranks share sequences, all of them give the same whole micro-batches.
  [[nodiscard]] UploadedBatches upload(std::span<const Batch> micro_batches) {
    see_whole_sequences();
    for (const Batch& batch : micro_batches)
      if constexpr (requires { batch.tokens.numel(); })
        require<InputError>(batch.tokens.numel() == batch.sequences * context_.sequence_length,
                            "batch: ", batch.tokens.numel(), " tokens of ", batch.sequences,
                            " sequences, and passes were planned for sequences of ", context_.sequence_length,
                            "; give them that length, or plan with another StepSize::sequence_length");
    if constexpr (!Device::counts_only)
      for (const Batch& batch : micro_batches) module_.model().validate(batch, context_.sequence_length);
    if constexpr (shards_sequences)
      if (stages_.on()) {
        std::vector<Batch> own;
        for (const Batch& batch : micro_batches) own.push_back(batch.part(stages_.rank(), stages_.ranks()));
        return {context_, own};
      }
    return {context_, micro_batches};
  }
  /// The pass over them. Batches of equal patterns with an equal `scale` enqueue the same work.
  void queue(const UploadedBatches& micro_batches, float scale, bool verified = false) {
    require(static_cast<int>(micro_batches.size()) == module_.own_micro_batches(), "train: ", micro_batches.size(),
            " micro-batches given to a module planned for ", module_.own_micro_batches());
    scale_ = scale;
    watch_.begin_step(verified);
    run(sharding::Pass::train, micro_batches);
  }
  /// This rank's sums of losses of the last pass, on the device: one for each micro-batch that the module is planned
  /// for.
  Tensor<const double> loss() const { return loss_; }

  /// How modules are tiled; in a dry run, for the run that follows (RunShape::plans).
  std::shared_ptr<const nn::TilePlans> plans() const { return context_.plans; }

  /// Watches the training passes.
  StepWatch<Model>& watch() { return watch_; }

  /// Computes a micro-batch again, or none, without changing the step's gradients and losses, to compare its digests
  /// with those of a step's first micro-batch on some rank. The module must be planned for it (RunShape::verifies).
  /// Collective.
  void repeat(const UploadedBatches& micro_batch, float scale) {
    require(micro_batch.size() <= 1, "repeat: ", micro_batch.size(), " micro-batches are given; one at most");
    scale_ = scale;
    watch_.begin_repetition();
    run(sharding::Pass::train, micro_batch, false, Reductions::left_out);
  }

  /// Sum of the valid targets' losses on this rank.
  double evaluate(const Batch& batch) {
    run(sharding::Pass::evaluate, upload({&batch, 1}));
    return read_loss();
  }

  /// Logits of some rows of a batch [rows, V], by the pass of `evaluate`: each unit's weights are released after use,
  /// so that a training module can compute them. The plan must have room for that many rows
  /// (plan::Request::logit_rows).
  void evaluate_logits(const Batch& batch, std::span<const std::int64_t> rows,
                       Tensor<Compute> out) requires(generates) {
    require(!rows.empty(), "evaluate_logits: no row is asked for");
    make_logits(sharding::Pass::evaluate, batch, rows, out);
  }

  /// Logits [T, V] of one sequence, with weights gathered once and kept. Its targets are not read.
  void logits(const Batch& batch, Tensor<Compute> out) requires(generates) { logits(batch, {}, out); }
  /// Logits of some rows of a batch [rows, V]; of all rows where `rows` is empty. The plan must have room for that many
  /// (plan::Request::logit_rows). If the module is planned for it (RunShape::cached_rows), blocks fill the caches that
  /// next_logits reads.
  void logits(const Batch& batch, std::span<const std::int64_t> rows, Tensor<Compute> out) requires(generates) {
    using sharding::Pass;
    make_logits(std::exchange(has_generated_, true) ? Pass::generate_again : Pass::generate, batch, rows, out);
  }
  /// Logits [sequences, V] of one more token per sequence, at `positions` [sequences]; the tokens before it went
  /// through `logits` or this.
  void next_logits(const Batch& batch, std::span<const std::int32_t> positions,
                   Tensor<Compute> out) requires(continues) {
    require(!cache_.empty(), "next_logits: the module keeps nothing of sequences; plan it with cached_rows");
    require(std::ssize(positions) == batch.sequences, "next_logits: ", positions.size(), " positions for ",
            batch.sequences, " sequences");
    const OneTokenEach one_token(context_, positions);
    logits(batch, {}, out);
  }

 private:
  /// Stacks of whole sequences have no stages.
  struct NoStages {
    NoStages(const Module&, const std::vector<typename Model::Block>&) {}
  };
  using Stages = std::conditional_t<shards_sequences, SequenceStages<Module>, NoStages>;

  static constexpr std::size_t unit_index(int unit) { return static_cast<std::size_t>(unit - 1); }

  static std::vector<typename Model::Block> all_blocks(const Model& model) {
    std::vector<typename Model::Block> blocks;
    for (int i = 0; i < model.blocks(); ++i) {
      blocks.push_back(model.block(i));
      nn::visit_kind(blocks.back(), [&]<class Block>(const Block&) {
        require<InputError>(model.units().offload_inputs == 0 || saves_its_input<Block>,
                            "units: inputs of blocks in host ", "memory are asked for, and block ", i,
                            " of this model saves more than its input; make it an nn::Recomputed");
      });
    }
    return blocks;
  }
  template <class Block>
  static constexpr bool saves_its_input = requires(typename Block::Saved& saved, Tensor<const Compute> x) {
    saved.x = x;
  };

  void make_logits(sharding::Pass pass, const Batch& batch, std::span<const std::int64_t> rows, Tensor<Compute> out) {
    if constexpr (shards_sequences)
      require<InputError>(!stages_.on(), "logits: ", stages_.ranks(),
                          " ranks share each sequence, and logits are made of whole ones; let one rank have each");
    logits_ = out;
    logit_rows_ = rows;
    const Batch read = nn::for_logits(batch);
    run(pass, upload({&read, 1}), true);
    module_.synchronize();
  }

  /// `logits`: the head makes them instead of a loss.
  void run(sharding::Pass pass, const UploadedBatches& micro_batches, bool logits = false,
           Reductions reductions = Reductions::made) {
    repeats_ = reductions == Reductions::left_out;
    Pass<Stack> tasks(module_, pass, 0, repeats_ ? 1 : 0, watch_.observer(), reductions, activation_work());
    const typename Arena::Scope taken(context_.arena);
    context_.poll_state = &tasks;
    pass_ = pass;
    makes_logits_ = logits;
    micro_batches_ = &micro_batches;
    const Tensor<double> losses = repeats_ ? spare_loss() : loss_;
    device::enqueue(context_.stream, device::Fill<double>{.y = losses, .value = 0.0f});
    see_whole_sequences();
    if constexpr (shards_sequences) stages_.begin_pass();
    share_context();
    if (micro_batches.size() > 0) shared_ = entry_.share(context_);
    while (const auto next = tasks.next()) {
      if (next->micro_batch >= static_cast<int>(micro_batches.size())) {
        tasks.skip();
        continue;
      }
      Use<Stack> use = tasks.enter();
      compute_named(use);
      use.done();
    }
    tasks.finish();
  }

  /// The context of a micro-batch is that of this rank's rows where several ranks share its sequences.
  void see_whole_sequences() {
    if constexpr (shards_sequences)
      if (stages_.on()) context_.sequence_length = module_.shape().sequence_length;
  }
  /// What the pass calls for tasks that move activations: copies of inputs, and exchanges between stages.
  ActivationWork activation_work() {
    ActivationWork work{
        .execute = [](void* self, const sharding::Task& task) { static_cast<Executor*>(self)->move_activations(task); },
        .state = this};
    if constexpr (shards_sequences)
      work.progress = [](void* self) { static_cast<Executor*>(self)->stages_.progress(); };
    return work;
  }
  void move_activations(const sharding::Task& task) {
    if constexpr (shards_sequences)
      if (task.action == sharding::Action::exchange) return stages_.exchange(task);
    offloaded_inputs_.execute(task);
  }

  /// Sets the context to what all micro-batches of the pass share: the most sequences of any, no documents, no noise.
  /// Otherwise `share` would see those of the previous pass.
  void share_context() {
    context_.training = pass_ == sharding::Pass::train;
    context_.documents = {};
    context_.noise = {};
    context_.sequences = 0;
    for (int i = 0; i < static_cast<int>(micro_batches_->size()); ++i)
      context_.sequences = std::max<std::int64_t>(context_.sequences, (*micro_batches_)[i].host.sequences);
  }

  double read_loss() {
    loss_on_host_.fetch(context_.stream, loss_.data());
    module_.synchronize();
    const auto losses = loss_on_host_.values();
    return std::accumulate(losses.data(), losses.data() + losses.numel(), 0.0);
  }
  Tensor<double> loss_of(const Use<Stack>& use) const {
    if (repeats_) return spare_loss();
    return loss_.slice(use.task().micro_batch, use.task().micro_batch + 1);  // [1]
  }

  /// Computes in a profiler range with the schedule's name.
  void compute_named(const Use<Stack>& use) {
    if constexpr (requires { typename Device::Range; }) {
      const typename Device::Range range(text_of(use.task(), module_.names()).c_str());
      compute(use);
    } else {
      compute(use);
    }
  }

  void compute(const Use<Stack>& use) {
    using sharding::Action;
    if (use.task().action == Action::forward)
      forward(use, use.task().index, use.task().micro_batch);
    else if (use.task().action == Action::loss)
      loss(use, use.task().index);
    else
      backward(use, use.task().index);
  }
  /// Passes a computation's output to the watch.
  void show(const Use<Stack>& use, Tensor<const Compute> values) {
    if (pass_ == sharding::Pass::train) watch_.see(use.task(), values);
  }
  static std::int64_t losses_of(const RunShape& shape) { return shape.micro_batches + (shape.verifies ? 1 : 0); }
  /// The loss of a repeated micro-batch [1].
  Tensor<double> spare_loss() const { return {loss_.data() + loss_.numel(), {1}}; }

  /// A unit's weights and gradients in a use.
  /// @{
  template <class M>
  static auto weights(const Use<Stack>& use, const M&) {
    return use.template weights<M::template FieldsOf>();
  }
  template <class M>
  static auto gradients(const Use<Stack>& use, const M&) {
    return use.template gradients<M::template FieldsOf>();
  }
  /// @}

  Shape stream_shape() const { return {context_.tokens(), module_.model().hidden()}; }

  void forward(const Use<Stack>& use, int unit, int micro_batch) {
    if (unit == 0) {
      batch_ = &(*micro_batches_)[micro_batch];
      see_whole_sequences();
      context_.sequences = batch_->host.sequences;
      if constexpr (nn::detail::has_documents<Batch>()) context_.documents = batch_->host.documents;
      if constexpr (nn::detail::has_noise<Batch>())
        if (context_.training) context_.noise = batch_->host.noise;
      if constexpr (shards_sequences)
        if (stages_.on()) stages_.begin_micro_batch(context_);
      entry_mark_ = context_.arena.mark(End::low);
      x_ = context_.template save<Compute>(stream_shape());
      if (!saves_here(1)) y_ = context_.template save<Compute>(stream_shape());
      if (offloads_inputs()) {
        offloaded_inputs_.begin({x_, y_});
        x_ = input_of(1);
      }
      entry_.forward(context_, weights(use, entry_), batch_->device.input, x_);
      return show(use, x_);
    }
    if constexpr (shards_sequences)
      if (stages_.on()) return forward_stage(use, unit);
    begin_forward(unit);
    nn::visit_kind(blocks_[unit_index(unit)], saved_[unit_index(unit)], [&](const auto& block, auto& saved) {
      if constexpr (continues)
        if (!cache_.empty())
          return block.extend(context_, shared_, weights(use, block), cache_.of(unit_index(unit)), x_, y_);
      block.forward(context_, shared_, weights(use, block), saved, x_, y_);
    });
    end_forward(use, unit);
  }
  /// Before and after a block's forward: where its output goes, and what it saved for nothing.
  /// @{
  void begin_forward(int unit) {
    marks_[unit_index(unit)] = context_.arena.mark(End::low);
    if (saves_here(unit)) y_ = context_.template save<Compute>(stream_shape());
    if (offloads_inputs()) y_ = input_of(unit + 1);
    temporary_ = context_.arena.mark(End::low);
  }
  void end_forward(const Use<Stack>& use, int unit) {
    std::swap(x_, y_);
    show(use, x_);
    if (!saves_here(unit)) context_.arena.release(End::low, temporary_);
  }
  /// @}

  /// Whether block inputs are offloaded in this pass.
  bool offloads_inputs() const { return pass_ == sharding::Pass::train && offloaded_inputs_.any(); }
  /// Where a unit's input is written in such a pass: a buffer, or memory of its own until its backward.
  Tensor<Compute> input_of(int unit) {
    if (offloaded_inputs_.uses_buffer(unit)) return offloaded_inputs_.buffer_for(unit);
    return context_.template save<Compute>(stream_shape());
  }

  /// A stage of a block's forward; the block's output is complete after the last one.
  void forward_stage(const Use<Stack>& use, int unit) {
    if (stages_.is_first(use.task())) begin_forward(unit);
    stages_.forward(context_, use.task(), shared_, weights_of(use), x_, y_, saves(unit));
    if (stages_.is_last(use.task())) end_forward(use, unit);
  }
  auto weights_of(const Use<Stack>& use) const {
    return [&use](const auto& block) { return weights(use, block); };
  }

  /// Whether a unit's forward keeps what its backward needs. Units without a backward alternate between two buffers.
  bool saves(int unit) const { return pass_ == sharding::Pass::train && unit >= module_.first_backward(); }

  /// Whether it keeps them, and its output, in the activation arena. Where inputs are offloaded, blocks save nothing
  /// else.
  bool saves_here(int unit) const { return saves(unit) && !offloads_inputs(); }

  void finish_micro_batch() {
    context_.arena.release(End::low, entry_mark_);
    if (pass_ == sharding::Pass::train) context_.arena.release(End::high, gradient_mark_);
  }

  void loss(const Use<Stack>& use, int unit) {
    if (pass_ == sharding::Pass::train) {
      gradient_mark_ = context_.arena.mark(End::high);
      dx_ = context_.arena.template allocate<Compute>(End::high, stream_shape());
      const auto unit_weights = weights(use, head_);
      head_.loss(context_, unit_weights, gradients(use, head_), x_, batch_->device.targets, scale_, dx_, loss_of(use));
      show(use, dx_);
      if (unit == module_.first_backward()) finish_micro_batch();
      return;
    }
    if constexpr (generates)
      if (makes_logits_) {
        write_logits(use);
        return finish_micro_batch();
      }
    head_.loss_only(context_, weights(use, head_), x_, batch_->device.targets, loss_of(use));
    finish_micro_batch();
  }

  /// Computes logits into host memory.
  void write_logits(const Use<Stack>& use) {
    const Tensor<const Compute> x = logit_rows_.empty() ? x_ : gathered_rows();
    if constexpr (Device::host_memory) {
      head_.logits(context_, weights(use, head_), x, logits_);
    } else {
      const auto logits = context_.template save<Compute>(logits_.shape());
      head_.logits(context_, weights(use, head_), x, logits);
      device::move<Device>(context_.stream, logits.data(), logits_.data(), logits.numel());
    }
  }

  /// The rows of the stream whose logits are requested, packed.
  Tensor<Compute> gathered_rows() {
    const auto rows = context_.template save<Compute>({std::ssize(logit_rows_), x_.columns()});  // [rows, H]
    if constexpr (!Device::counts_only)
      for (std::int64_t i = 0; i < rows.rows(); ++i) {
        const std::int64_t row = logit_rows_[static_cast<std::size_t>(i)];
        require(row >= 0 && row < x_.rows(), "logits: row ", row, " of ", x_.rows(), " is not there");
        device::move<Device>(context_.stream, x_.row(row), rows.row(i), x_.columns());
      }
    return rows;
  }

  void backward(const Use<Stack>& use, int unit) {
    if constexpr (shards_sequences)
      if (unit > 0 && stages_.on()) return backward_stage(use, unit);
    if (unit == 0)
      backward_of_entry(use);
    else
      nn::visit_kind(blocks_[unit_index(unit)], saved_[unit_index(unit)],
                     [&](const auto& block, auto& saved) { backward_of_block(use, unit, block, saved); });
    end_backward(use, unit);
  }
  void end_backward(const Use<Stack>& use, int unit) {
    if (unit > module_.first_backward()) show(use, dx_);
    if (unit == module_.first_backward()) finish_micro_batch();
  }
  /// A stage of a block's backward; the gradient is complete after the last one.
  void backward_stage(const Use<Stack>& use, int unit) {
    if (stages_.is_first(use.task()) && module_.uses()[static_cast<std::size_t>(unit)].offloads_input)
      stages_.set_input(unit, offloaded_inputs_.fetched(unit));
    stages_.backward(context_, use.task(), shared_, weights_of(use), gradients_of(use), dx_);
    if (!stages_.is_last(use.task())) return;
    context_.arena.release(End::low, marks_[unit_index(unit)]);
    end_backward(use, unit);
  }
  auto gradients_of(const Use<Stack>& use) const {
    return [&use](const auto& block) { return gradients(use, block); };
  }

  void backward_of_entry(const Use<Stack>& use) {
    using Entry = typename Model::Entry;
    const auto& input = batch_->device.input;
    if constexpr (nn::EntryWithoutWeightsInBackward<Entry, typename Module::Local,
                                                    nn::InputOf<Batch, typename Module::Local>>) {
      entry_.backward(context_, gradients(use, entry_), input, dx_);
    } else {
      const auto unit_weights = weights(use, entry_);
      entry_.backward(context_, unit_weights, gradients(use, entry_), input, dx_);
    }
  }

  template <class Block>
  void backward_of_block(const Use<Stack>& use, int unit, const Block& block, typename Block::Saved& saved) {
    if constexpr (saves_its_input<Block>)
      if (module_.uses()[static_cast<std::size_t>(unit)].offloads_input) saved.x = offloaded_inputs_.fetched(unit);
    if constexpr (nn::BlockWithoutWeightsInBackward<Block, typename Module::Local>) {
      block.backward(context_, shared_, gradients(use, block), saved, dx_);
    } else {
      const auto unit_weights = weights(use, block);
      block.backward(context_, shared_, unit_weights, gradients(use, block), saved, dx_);
    }
    context_.arena.release(End::low, marks_[unit_index(unit)]);
  }

  Module& module_;
  typename Model::Entry entry_;
  typename Model::Head head_;
  StepWatch<Model> watch_;
  nn::Context<typename Module::Local> context_;
  std::vector<typename Model::Block> blocks_;
  Cache cache_;
  [[no_unique_address]] Stages stages_;
  std::vector<typename Model::Block::Saved> saved_;
  std::vector<typename Arena::Mark> marks_;
  OffloadedInputs<Device, Compute> offloaded_inputs_;
  typename Arena::Mark entry_mark_;
  typename Arena::Mark temporary_;  ///< below what the current block's forward saves
  typename Arena::Mark gradient_mark_;
  typename Model::Entry::Shared shared_;            ///< of the pass
  const UploadedBatches* micro_batches_ = nullptr;  ///< of the pass
  sharding::Pass pass_ = sharding::Pass::train;
  bool makes_logits_ = false;   ///< of the pass: logits instead of a loss
  bool has_generated_ = false;  ///< the weights are still gathered from generation
  const typename UploadedBatches::MicroBatch* batch_ = nullptr;
  float scale_ = 0;
  device::Block<Device> loss_block_;
  Tensor<double> loss_;  // [micro_batches]
  device::HostCopy<Device, double> loss_on_host_;
  bool repeats_ = false;  ///< of the pass: a micro-batch is computed again
  Tensor<Compute> x_, y_, dx_, logits_;
  std::span<const std::int64_t> logit_rows_;  ///< of the pass; empty: all
};

}  // namespace fsdp
