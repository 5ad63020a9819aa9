// SPDX-License-Identifier: Apache-2.0
/// @file
/// The computations of a model's units on one rank, which an Executor calls between the tasks of a pass. They depend on
/// device and precision, and are independent of communicator and strategy.
///
/// Activations that backward needs are allocated from the arena's low end, last in first out; the residual gradient [T,
/// H] is at the high end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/execution/offloaded_inputs.hpp>
#include <tessera/fsdp/execution/sequence_cache.hpp>
#include <tessera/fsdp/execution/stream_probe.hpp>
#include <tessera/fsdp/execution/unit_tensors.hpp>
#include <tessera/fsdp/execution/uploaded_batch.hpp>
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
  using Unit = UnitTensors<Compute, typename L::Accumulate>;
  using MicroBatch = typename Uploaded<Batch, L>::MicroBatch;
  /// Whether the head computes logits, and whether blocks also have caches from which sequences can be continued.
  /// @{
  static constexpr bool generates = nn::GeneratingHead<Head, L>;
  static constexpr bool continues = generates && Cache::possible;
  /// @}

  /// `hidden`: number of columns of the residual stream. `offloaded`: storage of block inputs between forward and
  /// backward; nullptr if they stay in the arena.
  UnitComputation(const Context& context, Entry entry, std::vector<Block> blocks, Head head, std::int64_t hidden,
                  Cache cache, OffloadedInputs<Device, Compute>* offloaded)
      : context_(context),
        entry_(std::move(entry)),
        blocks_(std::move(blocks)),
        head_(std::move(head)),
        hidden_(hidden),
        cache_(std::move(cache)),
        offloaded_(offloaded),
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
  /// Calls a probe with each stream that a training pass computes.
  void show_streams(const StreamProbe<Compute>& probe) { probe_ = probe; }

  /// Begins a pass. The entry's `share` receives a context with the largest number of sequences of any micro-batch,
  /// without documents and noise, since these differ between micro-batches.
  void begin_pass(const PassInput<Compute>& input) {
    pass_ = input;
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

  // The steps of a block's computation, for code that computes a block in stages.

  /// Return the residual stream [T, H] that a block reads, the stream that it writes, the gradient, and the values that
  /// all blocks share.
  /// @{
  Tensor<const Compute> x() const { return x_; }
  Tensor<Compute> y() const { return y_; }
  Tensor<Compute> dx() const { return dx_; }
  const typename Entry::Shared& shared() const { return shared_; }
  /// @}
  /// Whether a unit's forward saves activations for backward. Units without a backward alternate between two buffers.
  bool saves(int unit) const { return pass_.trains && unit >= pass_.first_backward; }
  /// Call these before and after a block's forward. They allocate its output, and release saved activations that no
  /// backward needs.
  /// @{
  void begin_forward(int unit) {
    marks_[static_cast<std::size_t>(unit - 1)] = context_.arena.mark(End::low);
    if (saves_here(unit)) y_ = context_.template save<Compute>(stream_shape());
    if (offloads_inputs()) y_ = input_of(unit + 1);
    temporary_ = context_.arena.mark(End::low);
  }
  void end_forward(const sharding::Task& task) {
    std::swap(x_, y_);
    show(task, x_);
    if (!saves_here(task.index)) context_.arena.release(End::low, temporary_);
  }
  /// @}
  /// Call this after a block's backward.
  void end_backward(const sharding::Task& task) {
    context_.arena.release(End::low, marks_[static_cast<std::size_t>(task.index - 1)]);
    end_unit_backward(task);
  }

 private:
  Shape stream_shape() const { return {context_.tokens(), hidden_}; }
  /// Passes a computation's output to the probe.
  void show(const sharding::Task& task, Tensor<const Compute> values) {
    if (pass_.trains && probe_.see != nullptr) probe_.see(probe_.state, task, values);
  }
  /// Whether block inputs are offloaded in this pass.
  bool offloads_inputs() const { return pass_.trains && offloaded_ != nullptr; }
  /// Whether a unit's output and saved activations stay in the arena. With offloaded inputs, blocks save nothing but
  /// their input.
  bool saves_here(int unit) const { return saves(unit) && !offloads_inputs(); }
  /// Returns the memory of a unit's input if inputs are offloaded: a buffer, or separate memory that lives until the
  /// unit's backward.
  Tensor<Compute> input_of(int unit) {
    if (offloaded_->uses_buffer(unit)) return offloaded_->buffer_for(unit);
    return context_.template save<Compute>(stream_shape());
  }

  void forward_of_entry(const Unit& unit) {
    entry_mark_ = context_.arena.mark(End::low);
    x_ = context_.template save<Compute>(stream_shape());
    if (!saves_here(1)) y_ = context_.template save<Compute>(stream_shape());
    if (offloads_inputs()) {
      offloaded_->begin({x_, y_});
      x_ = input_of(1);
    }
    entry_.forward(context_, unit.weights(entry_), batch_->device.input, x_);
    show(unit.task, x_);
  }
  template <class Kind>
  void forward_of_block(const Unit& unit, const Kind& block, typename Kind::Saved& saved) {
    begin_forward(unit.task.index);
    if constexpr (continues)
      if (!cache_.empty()) {
        const auto index = static_cast<std::size_t>(unit.task.index - 1);
        block.extend(context_, shared_, unit.weights(block), cache_.of(index), x_, y_);
        return end_forward(unit.task);
      }
    block.forward(context_, shared_, unit.weights(block), saved, x_, y_);
    end_forward(unit.task);
  }

  void loss(const Unit& unit) {
    if (pass_.trains) {
      gradient_mark_ = context_.arena.mark(End::high);
      dx_ = context_.arena.template allocate<Compute>(End::high, stream_shape());
      const auto weights = unit.weights(head_);
      head_.loss(context_, weights, unit.gradients(head_), x_, batch_->device.targets, pass_.scale, dx_,
                 loss_of(unit.task));
      show(unit.task, dx_);
      if (unit.task.index == pass_.first_backward) finish_micro_batch();
      return;
    }
    if constexpr (generates)
      if (pass_.makes_logits) {
        write_logits(unit);
        return finish_micro_batch();
      }
    head_.loss_only(context_, unit.weights(head_), x_, batch_->device.targets, loss_of(unit.task));
    finish_micro_batch();
  }
  Tensor<double> loss_of(const sharding::Task& task) const {
    return pass_.losses.slice(task.micro_batch, task.micro_batch + 1);  // [1]
  }

  /// Computes logits and writes them to host memory.
  void write_logits(const Unit& unit) {
    const Tensor<const Compute> x = pass_.rows.empty() ? x_ : gathered_rows();
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
    const auto rows = context_.template save<Compute>({std::ssize(pass_.rows), x_.columns()});  // [rows, H]
    if constexpr (!Device::counts_only)
      for (std::int64_t i = 0; i < rows.rows(); ++i) {
        const std::int64_t row = pass_.rows[static_cast<std::size_t>(i)];
        require(row >= 0 && row < x_.rows(), "logits: row ", row, " of ", x_.rows(), " is not there");
        device::move<Device>(context_.stream, x_.row(row), rows.row(i), x_.columns());
      }
    return rows;
  }

  template <class Kind>
  void backward_of_block(const Unit& unit, const Kind& block, typename Kind::Saved& saved) {
    if constexpr (saves_its_input<Kind, Compute>)
      if (offloaded_ != nullptr && offloaded_->offloads(unit.task.index))
        saved.x = offloaded_->fetched(unit.task.index);
    if constexpr (nn::BlockWithoutWeightsInBackward<Kind, L>) {
      block.backward(context_, shared_, unit.gradients(block), saved, dx_);
    } else {
      const auto weights = unit.weights(block);
      block.backward(context_, shared_, weights, unit.gradients(block), saved, dx_);
    }
    end_backward(unit.task);
  }
  void backward_of_entry(const Unit& unit) {
    const auto& input = batch_->device.input;
    if constexpr (nn::EntryWithoutWeightsInBackward<Entry, L, nn::InputOf<Batch, L>>) {
      entry_.backward(context_, unit.gradients(entry_), input, dx_);
    } else {
      const auto weights = unit.weights(entry_);
      entry_.backward(context_, weights, unit.gradients(entry_), input, dx_);
    }
    end_unit_backward(unit.task);
  }
  void end_unit_backward(const sharding::Task& task) {
    if (task.index > pass_.first_backward) show(task, dx_);
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
  std::int64_t hidden_;
  Cache cache_;
  OffloadedInputs<Device, Compute>* offloaded_;
  StreamProbe<Compute> probe_;
  PassInput<Compute> pass_;
  const MicroBatch* batch_ = nullptr;
  typename Entry::Shared shared_;             ///< values that the entry shares with all blocks in this pass
  std::vector<typename Block::Saved> saved_;  // [blocks]
  std::vector<typename Arena::Mark> marks_;   // [blocks]
  typename Arena::Mark entry_mark_;
  typename Arena::Mark temporary_;  ///< arena mark below the activations that the current block's forward saves
  typename Arena::Mark gradient_mark_;
  Tensor<Compute> x_, y_, dx_;
};

}  // namespace fsdp
