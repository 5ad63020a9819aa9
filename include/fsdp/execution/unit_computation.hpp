// SPDX-License-Identifier: Apache-2.0
/// @file
/// The computations of a model's units on one rank, which an Executor calls between the tasks of a pass. They depend on
/// device and precision, and are independent of communicator and strategy.
///
/// Activations that backward needs are allocated from the arena's low end, last in first out; the residual gradient [T,
/// H] is at the high end (UnitStreams).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/execution/pass_data.hpp>
#include <tessera/fsdp/execution/step_hooks.hpp>
#include <tessera/fsdp/execution/unit_streams.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/one_of.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// The types of a model's units and batches.
template <class EntryT, class BlockT, class HeadT, class BatchT>
struct UnitTypes {
  using Entry = EntryT;
  using Block = BlockT;
  using Head = HeadT;
  using Batch = BatchT;
};

/// Whether a block's Saved contains its input `x`, which can then be moved elsewhere between forward and backward.
template <class Block, class Compute>
inline constexpr bool saves_its_input = requires(typename Block::Saved& saved, Tensor<const Compute> x) {
  saved.x = x;
};

/// A computation, and its unit's weights and gradients. Valid as long as the Use that it was created from.
template <class Weight, class Accumulate>
struct UnitTensors {
  sharding::Task task;
  const void* use = nullptr;
  void (*read_weights)(const void* use, std::span<Weight> list) = nullptr;
  void (*read_gradients)(const void* use, std::span<GradientView<Accumulate>> list) = nullptr;

  /// Returns the tensors of a Use.
  template <class Use>
  static UnitTensors of(const Use& use) {
    return {
        .task = use.task(),
        .use = &use,
        .read_weights = [](const void* self, std::span<Weight> list) { static_cast<const Use*>(self)->weights(list); },
        .read_gradients =
            [](const void* self, std::span<GradientView<Accumulate>> list) {
              static_cast<const Use*>(self)->gradients(list);
            }};
  }

  /// Return the weights or gradients of the unit's module; see Use. The first request for weights waits for their
  /// all-gather.
  /// @{
  template <class Module>
  typename Module::Weights weights(const Module&) const {
    std::array<Weight, field_count<Module::template FieldsOf, Weight>> list;
    read_weights(use, list);
    return unflatten<Module::template FieldsOf, Weight>(list);
  }
  template <class Module>
  typename Module::Gradients gradients(const Module&) const {
    std::array<GradientView<Accumulate>, field_count<Module::template FieldsOf, GradientView<Accumulate>>> list;
    read_gradients(use, list);
    return unflatten<Module::template FieldsOf, GradientView<Accumulate>>(list);
  }
  /// @}
};

/// The inputs and options of a pass.
template <class Compute>
struct PassInput {
  bool trains = true;             ///< whether backward follows forward
  int first_backward = 0;         ///< index of the first unit that has a backward; units before it save nothing
  std::size_t micro_batches = 0;  ///< number of micro-batches of this rank
  std::int64_t sequences = 0;     ///< largest number of sequences of any micro-batch
  float scale = 1;                ///< factor of the loss whose gradients are computed
  Tensor<double> losses;          // [micro-batches]
  bool makes_logits = false;      ///< whether the head writes logits of `rows` (empty: all rows) to `logits`, in host
                                  ///< memory, instead of a loss
  Tensor<Compute> logits = {};
  std::span<const std::int64_t> rows = {};
};

/// Computes units, one at a time, in the order of a pass.
template <class Types, class L>
class UnitComputation {
 public:
  using Entry = typename Types::Entry;
  using Block = typename Types::Block;
  using Head = typename Types::Head;
  using Batch = typename Types::Batch;
  using Device = typename L::Device;
  using Compute = typename L::Compute;
  using Arena = typename L::Arena;
  using End = typename Arena::End;
  using Context = nn::Context<L>;
  using Cache = SequenceCache<Block, L>;
  using Unit = UnitTensors<typename L::Weight, typename L::Accumulate>;
  using MicroBatch = typename Uploaded<Batch, L>::MicroBatch;
  /// Whether the head computes logits, and whether blocks also have caches from which sequences can be continued.
  /// @{
  static constexpr bool generates = nn::GeneratingHead<Head, L>;
  static constexpr bool continues = generates && Cache::possible;
  /// @}

  /// `hooks`: get each stream that a training pass computes; they must outlive it.
  UnitComputation(const Context& context, Entry entry, std::vector<Block> blocks, Head head, Cache cache,
                  const UnitStreams<L>& streams, const StepHookList<Compute>& hooks)
      : context_(context),
        entry_(std::move(entry)),
        blocks_(std::move(blocks)),
        head_(std::move(head)),
        cache_(std::move(cache)),
        streams_(streams),
        hooks_(hooks),
        saved_(blocks_.size()),
        marks_(blocks_.size()) {}

  /// Returns the context of the modules.
  /// @{
  Context& context() { return context_; }
  const Context& context() const { return context_; }
  /// @}
  /// The blocks, and their caches.
  /// @{
  const std::vector<Block>& blocks() const { return blocks_; }
  const Cache& cache() const { return cache_; }
  /// @}

  /// Begins a pass. The entry's `share` receives a context with the largest number of sequences of any micro-batch,
  /// without documents and noise, since these differ between micro-batches.
  void begin_pass(const PassInput<Compute>& input) {
    pass_ = input;
    streams_.begin_pass(input.trains, input.first_backward);
    context_.training = input.trains;
    context_.documents = {};
    context_.noise = {};
    context_.sequences = input.sequences;
    if (input.micro_batches > 0) shared_ = entry_.share(context_);
  }
  /// Begins a micro-batch. `batch` must outlive its computations.
  void begin_micro_batch(const MicroBatch& batch) {
    batch_ = &batch;
    context_.sequences = batch.host.sequences;
    if constexpr (nn::detail::has_documents<Batch>()) context_.documents = batch.host.documents;
    if constexpr (nn::detail::has_noise<Batch>())
      if (context_.training) context_.noise = batch.host.noise;
  }
  /// Computes a unit's forward or backward, or both for the last unit.
  void compute(const Unit& unit) {
    if (unit.task.action == sharding::Action::loss) return loss(unit);
    const bool is_forward = unit.task.action == sharding::Action::forward;
    if (unit.task.index == 0) return is_forward ? forward_of_entry(unit) : backward_of_entry(unit);
    const auto index = static_cast<std::size_t>(unit.task.index - 1);
    if constexpr (nn::is_one_of<Block>)
      nn::visit_kind(blocks_[index], saved_[index], [&](const auto& block, auto& saved) {
        is_forward ? forward_of_block(unit, block, saved) : backward_of_block(unit, block, saved);
      });
    else
      is_forward ? forward_of_block(unit, blocks_[index], saved_[index])
                 : backward_of_block(unit, blocks_[index], saved_[index]);
  }

  // The parts of a block's computation, for code that computes them one by one.

  /// Return the residual streams, and the values that all blocks share.
  /// @{
  UnitStreams<L>& streams() { return streams_; }
  const typename Entry::Shared& shared() const { return shared_; }
  /// @}
  /// Call these before and after a block's forward. They allocate its output, and release saved activations that no
  /// backward needs.
  /// @{
  void begin_forward(int unit) {
    marks_[static_cast<std::size_t>(unit - 1)] = context_.arena.mark(End::low);
    streams_.begin_block(context_, unit);
    temporary_ = context_.arena.mark(End::low);
  }
  void end_forward(const sharding::Task& task) {
    streams_.end_block();
    show(task, streams_.x());
    if (!streams_.saves_here(task.index)) context_.arena.release(End::low, temporary_);
  }
  /// @}
  /// Call this after a block's backward.
  void end_backward(const sharding::Task& task) {
    context_.arena.release(End::low, marks_[static_cast<std::size_t>(task.index - 1)]);
    end_unit_backward(task);
  }

 private:
  /// Passes a computation's output to the hooks.
  void show(const sharding::Task& task, Tensor<const Compute> values) {
    if (pass_.trains) hooks_.call(&StepHooks<Compute>::see, task, values);
  }

  void forward_of_entry(const Unit& unit) {
    entry_mark_ = context_.arena.mark(End::low);
    streams_.begin(context_);
    entry_.forward(context_, unit.weights(entry_), batch_->device.input, streams_.x());
    show(unit.task, streams_.x());
  }
  template <class Kind>
  void forward_of_block(const Unit& unit, const Kind& block, typename Kind::Saved& saved) {
    begin_forward(unit.task.index);
    if constexpr (continues)
      if (!cache_.empty()) {
        const auto index = static_cast<std::size_t>(unit.task.index - 1);
        block.extend(context_, shared_, unit.weights(block), cache_.of(index), streams_.x(), streams_.y());
        return end_forward(unit.task);
      }
    block.forward(context_, shared_, unit.weights(block), saved, streams_.x(), streams_.y());
    end_forward(unit.task);
  }

  void loss(const Unit& unit) {
    if (pass_.trains) {
      gradient_mark_ = context_.arena.mark(End::high);
      streams_.begin_backward(context_);
      const auto weights = unit.weights(head_);
      head_.loss(context_, weights, unit.gradients(head_), streams_.x(), batch_->device.targets, pass_.scale,
                 streams_.dx(), loss_of(unit.task));
      show(unit.task, streams_.dx());
      if (unit.task.index == pass_.first_backward) finish_micro_batch();
      return;
    }
    if constexpr (generates)
      if (pass_.makes_logits) {
        write_logits(unit);
        return finish_micro_batch();
      }
    head_.loss_only(context_, unit.weights(head_), streams_.x(), batch_->device.targets, loss_of(unit.task));
    finish_micro_batch();
  }
  Tensor<double> loss_of(const sharding::Task& task) const {
    return pass_.losses.slice(task.micro_batch, task.micro_batch + 1);  // [1]
  }

  /// Computes logits and writes them to host memory.
  void write_logits(const Unit& unit) {
    const Tensor<const Compute> x = pass_.rows.empty() ? streams_.x() : gathered_rows();
    if constexpr (Device::host_memory) {
      head_.logits(context_, unit.weights(head_), x, pass_.logits);
    } else {
      const auto logits = context_.template save<Compute>(pass_.logits.shape());
      head_.logits(context_, unit.weights(head_), x, logits);
      device::move<Device>(context_.stream, logits.data(), pass_.logits.data(), logits.numel());
    }
  }
  /// Returns the rows of the stream whose logits are requested, packed.
  Tensor<Compute> gathered_rows() {
    const Tensor<Compute> x = streams_.x();
    const auto rows = context_.template save<Compute>({std::ssize(pass_.rows), x.columns()});  // [rows, H]
    if constexpr (!Device::counts_only)
      for (std::int64_t i = 0; i < rows.rows(); ++i) {
        const std::int64_t row = pass_.rows[static_cast<std::size_t>(i)];
        require(row >= 0 && row < x.rows(), "logits: row ", row, " of ", x.rows(), " is not there");
        device::move<Device>(context_.stream, x.row(row), rows.row(i), x.columns());
      }
    return rows;
  }

  template <class Kind>
  void backward_of_block(const Unit& unit, const Kind& block, typename Kind::Saved& saved) {
    if constexpr (saves_its_input<Kind, Compute>)
      if (const auto x = streams_.fetched(unit.task.index)) saved.x = *x;
    if constexpr (nn::BlockWithoutWeightsInBackward<Kind, L>) {
      block.backward(context_, shared_, unit.gradients(block), saved, streams_.dx());
    } else {
      const auto weights = unit.weights(block);
      block.backward(context_, shared_, weights, unit.gradients(block), saved, streams_.dx());
    }
    end_backward(unit.task);
  }
  void backward_of_entry(const Unit& unit) {
    const auto& input = batch_->device.input;
    if constexpr (nn::EntryWithoutWeightsInBackward<Entry, L, nn::InputOf<Batch, L>>) {
      entry_.backward(context_, unit.gradients(entry_), input, streams_.dx());
    } else {
      const auto weights = unit.weights(entry_);
      entry_.backward(context_, weights, unit.gradients(entry_), input, streams_.dx());
    }
    end_unit_backward(unit.task);
  }
  void end_unit_backward(const sharding::Task& task) {
    if (task.index > pass_.first_backward) show(task, streams_.dx());
    if (task.index == pass_.first_backward) finish_micro_batch();
  }
  void finish_micro_batch() {
    context_.arena.release(End::low, entry_mark_);
    if (pass_.trains) context_.arena.release(End::high, gradient_mark_);
  }

  Context context_;
  Entry entry_;
  std::vector<Block> blocks_;
  Head head_;
  Cache cache_;
  UnitStreams<L> streams_;
  const StepHookList<Compute>& hooks_;
  PassInput<Compute> pass_;
  const MicroBatch* batch_ = nullptr;
  typename Entry::Shared shared_;             ///< values that the entry shares with all blocks in this pass
  std::vector<typename Block::Saved> saved_;  // [blocks]
  std::vector<typename Arena::Mark> marks_;   // [blocks]
  typename Arena::Mark entry_mark_;
  typename Arena::Mark temporary_;  ///< arena mark below the activations that the current block's forward saves
  typename Arena::Mark gradient_mark_;
};

}  // namespace fsdp
