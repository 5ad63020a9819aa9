// SPDX-License-Identifier: Apache-2.0
/// @file
/// Computes blocks stage by stage if several ranks share a sequence, and exchanges the inputs of the stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/buffer/sequence.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/one_of.hpp>
#include <tessera/fsdp/nn/stages.hpp>
#include <tessera/fsdp/sequence/sequence_exchanges.hpp>
#include <tessera/fsdp/sequence/stage_memory.hpp>
#include <tessera/fsdp/sequence/staged_block.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>

namespace fsdp {

namespace detail {

/// The tensors that the stages of a block save for backward.
template <class Block>
struct StagesSaved {
  typename nn::StagedOf<Block>::RowsSaved rows;
  std::vector<typename nn::StagedOf<Block>::HeadsSaved> heads;  ///< [parts]
};
/// The same for a block of several kinds.
template <class... Kinds>
struct StagesSaved<nn::OneOf<Kinds...>> {
  std::tuple<StagesSaved<Kinds>...> of;
};

template <class Kind, class Block>
StagesSaved<Kind>& saved_of(StagesSaved<Block>& saved) {
  if constexpr (std::is_same_v<Kind, Block>)
    return saved;
  else
    return std::get<StagesSaved<Kind>>(saved.of);
}

}  // namespace detail

/// Computes the stages of the blocks, which all define them, of a ShardedModel, one unit at a time.
template <class Module>
class SequenceStages {
 public:
  static constexpr bool possible = true;  ///< stages are computed if several ranks share a sequence
  using L = typename Module::Local;
  using Comm = typename Module::Comm;
  using Compute = typename L::Compute;
  using Arena = typename Module::Device::Arena;
  using Block = typename Module::Model::Block;
  using Context = nn::Context<L>;
  using Memory = StageMemory<L, Arena>;
  using Unit = typename Memory::Unit;
  using Task = sharding::Task;

  /// Both arguments must outlive it.
  SequenceStages(Module& module, const std::vector<Block>& blocks)
      : module_(module),
        blocks_(blocks),
        memory_(module.sequence_group()),
        units_(blocks.size()),
        saved_(blocks.size()) {}

  /// Whether several ranks share a sequence.
  bool on() const { return ranks() > 1; }
  /// Return the number of ranks that share a sequence, and this rank's index among them.
  /// @{
  int ranks() const { return memory_.ranks(); }
  int rank() const { return memory_.rank(); }
  /// @}

  /// Sets the context's length to the length of whole sequences, which an earlier micro-batch may have changed.
  void see_whole(Context& context) const {
    if (on()) context.sequence_length = module_.size().sequence_length;
  }
  /// Returns this rank's rows of batches.
  template <class Batch>
  std::vector<Batch> parts_of(std::span<const Batch> batches) const {
    std::vector<Batch> own;
    for (const Batch& batch : batches) own.push_back(batch.part(rank(), ranks()));
    return own;
  }
  /// Begins a pass in a context of whole sequences. Discards exchanges that an unfinished pass has left in flight.
  void begin_pass(Context& context) {
    see_whole(context);
    exchanges_.drop();
  }
  /// Receives the context of a micro-batch's whole sequences, and changes it to the context of this rank's rows.
  void begin_micro_batch(Context& context) {
    if (!on()) return;
    whole_.emplace(context);
    memory_.set_rows(context.tokens());
    context.sequences = 1;
    context.sequence_length = memory_.own_rows();
    context.documents = {};
  }

  /// Whether a task is a stage of a block.
  bool computes(const Task& task) const { return on() && task.index > 0 && task.action != sharding::Action::loss; }
  /// Computes a stage. A block's output, or the gradient of its input, is complete after the last one.
  template <class Computation>
  void compute(Computation& model, const typename Computation::Unit& unit) {
    const Task& task = unit.task;
    auto& streams = model.streams();
    const auto weights_of = [&](const auto& block) { return unit.weights(block); };
    if (task.action == sharding::Action::forward) {
      if (is_first(task)) model.begin_forward(task.index);
      forward(model.context(), task, model.shared(), weights_of, streams.x(), streams.y(), streams.saves(task.index));
      if (is_last(task)) model.end_forward(task);
      return;
    }
    if (is_first(task))
      if (const auto x = streams.fetched(task.index)) units_[index_of(task.index)].x = *x;
    const auto gradients_of = [&](const auto& block) { return unit.gradients(block); };
    backward(model.context(), task, model.shared(), weights_of, gradients_of, streams.dx());
    if (is_last(task)) model.end_backward(task);
  }

  /// Starts an exchange.
  void exchange(const Task& task) {
    using sharding::Step;
    const sharding::Stage at = stage_of(task);
    visit(task, [&](const auto& block, auto&, Unit& unit) {
      Part& own = unit.parts[static_cast<std::size_t>(at.part)];
      Ring& ring = memory_.ring(at.part);
      switch (at.step) {
        case Step::to_heads:
          return start<buffer::OwnRows>(task, block, unit, Memory::moved(block, unit, at, ring.rows), own.in);
        case Step::to_rows: return start<buffer::OwnHeads>(task, block, unit, {own.out}, {own.rows});
        case Step::gradient_to_heads: return start<buffer::OwnRows>(task, block, unit, {own.rows}, {ring.out});
        case Step::gradient_to_rows:
          return start<buffer::OwnHeads>(task, block, unit, Memory::moved(block, unit, at, ring.in), own.in);
        default: throw LogicError("sequence stages: an exchange task names a computation");
      }
    });
  }

  /// Lets exchanges make progress.
  void progress() { exchanges_.progress(); }

 private:
  using Part = typename Memory::Part;
  using Ring = typename Memory::Ring;
  using Matrices = typename Memory::Matrices;

  /// Whether a task is the first or the last stage of a unit's forward or backward.
  /// @{
  bool is_first(const Task& task) const { return module_.problem().begins(task); }
  bool is_last(const Task& task) const { return module_.problem().ends(task); }
  /// @}

  /// Computes a stage of a unit's forward from x [T, H]; y [T, H] is complete after the last stage. `keeps`: whether a
  /// backward follows. `weights_of(block)` returns the unit's weights.
  template <class Shared, class WeightsOf>
  void forward(Context& rows, const Task& task, const Shared& shared, WeightsOf weights_of, Tensor<const Compute> x,
               Tensor<Compute> y, bool keeps) {
    const sharding::Stage at = stage_of(task);
    visit(task, [&](const auto& block, auto& saved, Unit& unit) {
      if (is_first(task)) {
        unit.x = x;
        begin(rows, block, saved, unit, keeps && !stages_of(task).replays);
      }
      if (at.step != sharding::Step::after) return compute_middle(rows, at, block, saved, unit, shared, weights_of);
      end_middle(rows, sharding::Step::to_rows);
      block.after(rows, shared, weights_of(block), saved.rows, unit.x, unit.ranges, memory_.rows_of(block, unit), y);
      if (!memory_.keeps()) memory_.release_saved(rows);
    });
  }

  /// Computes a stage of a unit's backward. After the last stage, `dy` [T, H] contains the gradient of the unit's
  /// input.
  template <class Shared, class WeightsOf, class GradientsOf>
  void backward(Context& rows, const Task& task, const Shared& shared, WeightsOf weights_of, GradientsOf gradients_of,
                Tensor<Compute> dy) {
    using sharding::Step;
    const sharding::Stage at = stage_of(task);
    visit(task, [&](const auto& block, auto& saved, Unit& unit) {
      const bool replays = stages_of(task).replays;
      const auto part = static_cast<std::size_t>(at.part);
      if (replays && is_first(task)) begin(rows, block, saved, unit, true);
      switch (at.step) {
        case Step::after_backward: {
          const auto mark = rows.arena.mark(Arena::End::low);
          if (replays) {
            end_middle(rows, Step::to_rows);
            block.after_again(rows, shared, weights_of(block), saved.rows, unit.x, unit.ranges,
                              memory_.rows_of(block, unit));
          }
          const auto outs = memory_.rows_of(block, unit);
          block.after_backward(rows, shared, weights_of(block), gradients_of(block), saved.rows, unit.ranges, outs, dy,
                               outs);
          rows.arena.release(Arena::End::low, mark);
          exchanges_.begin(static_cast<int>(unit.parts.size()));
          return memory_.begin_gradients(rows, block, unit);
        }
        case Step::between_backward: {
          exchanges_.wait(module_.stream(), Step::gradient_to_heads, at.part);
          Part& own = unit.parts[part];
          Ring& ring = memory_.ring(at.part);
          return block.between_backward(*whole_, shared, weights_of(block), gradients_of(block), saved.heads[part],
                                        memory_.range_of(unit, at.part), Memory::inputs_of(block, own.in), own.out,
                                        ring.out, Memory::inputs_of(block, ring.in));
        }
        case Step::before_backward: {
          exchanges_.wait(module_.stream(), Step::gradient_to_rows, at.part);
          const std::vector<nn::HeadRange> ranges = memory_.ranges_of_part(unit, at.part);
          block.before_backward(
              rows, shared, weights_of(block), gradients_of(block), saved.rows, Memory::part_of(ranges, at.part, unit),
              memory_.matrices(block, ranges, Memory::moved(block, unit, at, unit.parts[part].in)), dy);
          if (is_last(task)) end_middle(rows, Step::gradient_to_rows);
          return;
        }
        default: return compute_middle(rows, at, block, saved, unit, shared, weights_of);
      }
    });
  }

  static std::size_t index_of(int unit) { return static_cast<std::size_t>(unit - 1); }
  const sharding::Stages& stages_of(const Task& task) const {
    return module_.uses()[static_cast<std::size_t>(task.index)].stages;
  }
  sharding::Stage stage_of(const Task& task) const {
    return sharding::stages_of(stages_of(task))[static_cast<std::size_t>(task.stage)];
  }
  template <class Visit>
  void visit(const Task& task, Visit visit) {
    const std::size_t index = index_of(task.index);
    units_[index].parts.resize(static_cast<std::size_t>(stages_of(task).parts));
    nn::visit_kind(blocks_[index], [&]<class Kind>(const Kind& block) {
      using nn::staged;
      visit(staged(block), detail::saved_of<Kind>(saved_[index]), units_[index]);
    });
  }
  /// Begins a forward, or its repetition in backward. `keeps`: whether the middle's inputs and outputs are saved for
  /// backward.
  template <class B, class Saved>
  void begin(Context& rows, const B& block, Saved& saved, Unit& unit, bool keeps) {
    saved.heads.resize(unit.parts.size());
    exchanges_.begin(static_cast<int>(unit.parts.size()));
    memory_.begin(rows, block, unit, keeps);
  }
  /// Waits for all exchanges of kind `last` and releases the buffers that were in flight.
  void end_middle(Context& rows, sharding::Step last) {
    exchanges_.wait(module_.stream(), last);
    memory_.end_middle(rows);
  }

  /// Computes a stage before the last exchange of a forward, or of its recomputation in backward.
  template <class B, class Saved, class Shared, class WeightsOf>
  void compute_middle(Context& rows, const sharding::Stage& at, const B& block, Saved& saved, Unit& unit,
                      const Shared& shared, WeightsOf weights_of) {
    const auto part = static_cast<std::size_t>(at.part);
    Ring& ring = memory_.ring(at.part);
    Part& own = unit.parts[part];
    if (at.step == sharding::Step::before) {
      if (!memory_.keeps()) own.in = ring.in, own.out = ring.out;
      const std::vector<nn::HeadRange> ranges = memory_.ranges_of_part(unit, at.part);
      block.before(rows, shared, weights_of(block), saved.rows, unit.x, Memory::part_of(ranges, at.part, unit),
                   memory_.matrices(block, ranges, Memory::moved(block, unit, at, ring.rows)));
      return;
    }
    exchanges_.wait(module_.stream(), sharding::Step::to_heads, at.part);
    const auto mark = rows.arena.mark(Arena::End::low);
    block.between(*whole_, shared, weights_of(block), saved.heads[part], memory_.range_of(unit, at.part),
                  Memory::inputs_of(block, own.in), own.out);
    if (!memory_.keeps()) rows.arena.release(Arena::End::low, mark);
  }

  /// Starts the exchange of a task. `from` has placement From; the first from.size() matrices of `to` receive the other
  /// placement.
  template <buffer::SequencePlacement From, class B>
  void start(const Task& task, const B& block, const Unit& unit, const Matrices& from, Matrices to) {
    to.resize(from.size());
    const sharding::Stage at = stage_of(task);
    const bool inputs = at.step == sharding::Step::to_heads || at.step == sharding::Step::gradient_to_rows;
    std::vector<std::vector<std::int64_t>> sent, received;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto columns = [&](const nn::HeadRange& range) {
        return inputs ? block.input_columns(range)[i] : block.output_columns(range);
      };
      sent.push_back(memory_.template counts_of<From>(unit, at.part, columns));
      received.push_back(memory_.template counts_of<buffer::OtherPlacement<From>>(unit, at.part, columns));
    }
    exchanges_.template start<From>(*module_.mesh().sequence_axis(), module_.stream(), at, task.index, from,
                                    std::move(sent), to, std::move(received));
  }
  Module& module_;
  const std::vector<Block>& blocks_;
  Memory memory_;
  std::vector<Unit> units_;
  std::vector<detail::StagesSaved<Block>> saved_;
  std::optional<Context> whole_;  ///< context of the micro-batch's whole sequences
  SequenceExchanges<Comm, Compute> exchanges_;
};

}  // namespace fsdp
