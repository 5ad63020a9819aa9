// SPDX-License-Identifier: Apache-2.0
/// @file
/// Computes blocks stage by stage where several ranks share a sequence, and exchanges what stages read.
///
/// Memory: what a unit keeps grows at the arena's low end. Matrices on their way are at the high end, two of each kind,
/// which the parts of the middle use in turn: from a computation's first stage until its middle is over.
#pragma once

#include <algorithm>
#include <array>
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
#include <tessera/fsdp/execution/sequence_exchanges.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/one_of.hpp>
#include <tessera/fsdp/nn/recomputed.hpp>
#include <tessera/fsdp/nn/stages.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/fsdp/sharding/stages.hpp>

namespace fsdp {

namespace detail {

/// What the stages of a block keep for backward.
template <class Block>
struct StagesSaved {
  typename nn::StagedOf<Block>::RowsSaved rows;
  std::vector<typename nn::StagedOf<Block>::HeadsSaved> heads;  ///< [parts]
};
/// Those of all kinds.
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

/// Stages of the blocks of a ShardedModel, one unit at a time.
template <class Module>
class SequenceStages {
 public:
  using L = typename Module::Local;
  using Comm = typename Module::Comm;
  using Compute = typename L::Compute;
  using Arena = typename Module::Device::Arena;
  using Block = typename Module::Model::Block;
  using Context = nn::Context<L>;
  using Task = sharding::Task;

  /// Both must outlive it.
  SequenceStages(Module& module, const std::vector<Block>& blocks)
      : module_(module),
        blocks_(blocks),
        group_(module.sequence_group()),
        units_(blocks.size()),
        saved_(blocks.size()) {}

  /// Whether several ranks share a sequence.
  bool on() const { return group_.size > 1; }
  /// Ranks that share a sequence, and this one's number among them.
  /// @{
  int ranks() const { return group_.size; }
  int rank() const { return group_.member; }
  /// @}

  /// Drops what an unfinished pass has left on its way.
  void begin_pass() { exchanges_.drop(); }
  /// Takes the context of a micro-batch's whole sequences, and makes it that of this rank's rows.
  void begin_micro_batch(Context& context) {
    whole_.emplace(context);
    rows_ = context.tokens();
    context.sequences = 1;
    context.sequence_length = own_rows();
    context.documents = {};
  }

  /// Whether a task is the first or the last stage of a unit's forward or backward.
  /// @{
  bool is_first(const Task& task) const { return module_.problem().begins(task); }
  bool is_last(const Task& task) const { return module_.problem().ends(task); }
  /// @}

  /// Computes a stage of a unit's forward from x [T, H]; y [T, H] is complete after the last one. `keeps`: a backward
  /// follows. `weights_of(block)`: the unit's weights.
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
      block.after(rows, shared, weights_of(block), saved.rows, unit.x, unit.ranges, rows_of(block, unit), y);
      if (!keeps_) rows.arena.release(Arena::End::low, low_);
    });
  }

  /// Sets the input that a unit's backward computes from again, where it was elsewhere in between.
  void set_input(int unit, Tensor<const Compute> x) { units_[index_of(unit)].x = x; }

  /// Computes a stage of a unit's backward. `dy` [T, H] becomes the gradient of the unit's input after the last one.
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
            block.after_again(rows, shared, weights_of(block), saved.rows, unit.x, unit.ranges, rows_of(block, unit));
          }
          const auto outs = rows_of(block, unit);
          block.after_backward(rows, shared, weights_of(block), gradients_of(block), saved.rows, unit.ranges, outs, dy,
                               outs);
          rows.arena.release(Arena::End::low, mark);
          return begin_gradients(rows, block, unit);
        }
        case Step::between_backward: {
          exchanges_.wait(module_.stream(), Step::gradient_to_heads, at.part);
          Part& own = unit.parts[part];
          return block.between_backward(*whole_, shared, weights_of(block), gradients_of(block), saved.heads[part],
                                        range_of(unit, at.part), inputs_of(block, own.in), own.out, ring_[part % 2].out,
                                        inputs_of(block, ring_[part % 2].in));
        }
        case Step::before_backward: {
          exchanges_.wait(module_.stream(), Step::gradient_to_rows, at.part);
          const std::vector<nn::HeadRange> ranges = ranges_of_part(unit, at.part);
          block.before_backward(rows, shared, weights_of(block), gradients_of(block), saved.rows,
                                part_of(ranges, at.part, unit),
                                matrices(block, ranges, moved(block, unit, at, unit.parts[part].in)), dy);
          if (is_last(task)) end_middle(rows, Step::gradient_to_rows);
          return;
        }
        default: return compute_middle(rows, at, block, saved, unit, shared, weights_of);
      }
    });
  }

  /// Starts an exchange.
  void exchange(const Task& task) {
    using sharding::Step;
    const sharding::Stage at = stage_of(task);
    visit(task, [&](const auto& block, auto&, Unit& unit) {
      Part& own = unit.parts[static_cast<std::size_t>(at.part)];
      Ring& ring = ring_[static_cast<std::size_t>(at.part % 2)];
      switch (at.step) {
        case Step::to_heads:
          return start<buffer::OwnRows>(task, block, unit, moved(block, unit, at, ring.rows), own.in);
        case Step::to_rows: return start<buffer::OwnHeads>(task, block, unit, {own.out}, {own.rows});
        case Step::gradient_to_heads: return start<buffer::OwnRows>(task, block, unit, {own.rows}, {ring.out});
        case Step::gradient_to_rows:
          return start<buffer::OwnHeads>(task, block, unit, moved(block, unit, at, ring.in), own.in);
        default: throw LogicError("sequence stages: an exchange task names a computation");
      }
    });
  }

  /// Lets exchanges progress.
  void progress() { exchanges_.progress(); }

 private:
  using Matrices = std::vector<Tensor<Compute>>;

  /// Memory of a part of the middle.
  struct Part {
    Matrices in;           // [inputs][N, columns]; at the end their gradient in own rows, [inputs][K][T, columns]
    Tensor<Compute> out;   // [N, columns]
    Tensor<Compute> rows;  // the same in this rank's rows: [K][T, columns]; in backward their gradient
  };
  struct Unit {
    Tensor<const Compute> x;            // [T, H]
    std::vector<nn::HeadRange> ranges;  // [K * parts]: part p of rank r is range r * parts + p
    std::vector<Part> parts;
  };
  /// What is on its way: inputs of the middle, or their gradients.
  struct Ring {
    Matrices rows;        // [inputs][K][T, columns]; in forward
    Matrices in;          // [inputs][N, columns]; in forward only if it is not kept; in backward its gradient
    Tensor<Compute> out;  // [N, columns]; likewise
  };

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
      visit(nn::staged(block), detail::saved_of<Kind>(saved_[index]), units_[index]);
    });
  }
  nn::HeadRange range_of(const Unit& unit, int part) const { return range_of(unit, rank(), part); }
  static nn::HeadRange range_of(const Unit& unit, int rank, int part) {
    return unit.ranges[static_cast<std::size_t>(rank) * unit.parts.size() + static_cast<std::size_t>(part)];
  }
  std::vector<nn::HeadRange> ranges_of_part(const Unit& unit, int part) const {
    std::vector<nn::HeadRange> list;
    for (int r = 0; r < ranks(); ++r) list.push_back(range_of(unit, r, part));
    return list;
  }
  static nn::Part part_of(const std::vector<nn::HeadRange>& ranges, int part, const Unit& unit) {
    return {.ranges = ranges, .index = part, .count = static_cast<int>(unit.parts.size())};
  }
  /// Rows of this rank, or of another of those that share the sequences.
  /// @{
  std::int64_t own_rows() const { return rows_of_rank(rank()); }
  std::int64_t rows_of_rank(int rank) const {
    const nn::RowRange range = nn::rows_of_part(rows_, rank, ranks());
    return range.end - range.begin;
  }
  /// @}

  /// Views of flat memory as the block's stages take them.
  /// @{
  template <class B>
  static nn::StageInputs<B> inputs_of(const B&, const Matrices& list) {
    nn::StageInputs<B> inputs;
    std::copy_n(list.begin(), B::inputs, inputs.begin());
    return inputs;
  }
  /// Returns those of a part's inputs, or of their gradients, that are made or exchanged with it: the common ones in
  /// forward with the first part, in backward with the last.
  template <class B>
  static Matrices moved(const B&, const Unit& unit, const sharding::Stage& at, Matrices list) {
    const bool gradients = at.step == sharding::Step::gradient_to_rows || at.step == sharding::Step::before_backward;
    const int with = gradients ? static_cast<int>(unit.parts.size()) - 1 : 0;
    if (at.part != with) list.resize(B::inputs - nn::common_inputs<B>());
    return list;
  }
  /// [K][inputs]: the matrices for each rank; empty where `flat` has none.
  template <class B>
  std::vector<nn::StageInputs<B>> matrices(const B& block, const std::vector<nn::HeadRange>& ranges,
                                           const Matrices& flat) {
    std::vector<nn::StageInputs<B>> list(ranges.size());
    for (std::size_t i = 0; i < flat.size(); ++i) {
      Compute* at = flat[i].data();
      for (std::size_t r = 0; r < ranges.size(); ++r) {
        const std::int64_t columns = block.input_columns(ranges[r])[i];
        list[r][i] = Tensor<Compute>(at, {own_rows(), columns});
        at += own_rows() * columns;
      }
    }
    return list;
  }
  /// [K * parts]: the middle's outputs in this rank's rows, in the order of Unit::ranges.
  template <class B>
  Matrices rows_of(const B& block, const Unit& unit) {
    Matrices list(unit.ranges.size());
    for (std::size_t part = 0; part < unit.parts.size(); ++part) {
      Compute* at = unit.parts[part].rows.data();
      for (std::size_t i = part; i < list.size(); i += unit.parts.size()) {
        const std::int64_t columns = block.output_columns(unit.ranges[i]);
        list[i] = Tensor<Compute>(at, {own_rows(), columns});
        at += own_rows() * columns;
      }
    }
    return list;
  }
  /// @}

  /// Allocates what a part's inputs or outputs take, in own rows of all heads or in all rows of own heads. Common
  /// inputs are those of the first part, in `first`.
  /// @{
  /// Those in heads have room for the gradients in own rows, which later take their place.
  template <class B>
  Matrices inputs_in_heads(Context& context, typename Arena::End end, const B& block, const Unit& unit, int part,
                           const Matrices& first) {
    const auto elements = elements_in_rows(block, unit, part);
    const auto columns = block.input_columns(range_of(unit, part));
    Matrices list;
    for (std::size_t i = 0; i < B::inputs; ++i) {
      if (part > 0 && is_common<B>(i)) {
        list.push_back(first[i]);
        continue;
      }
      const std::int64_t most = std::max(elements[i], rows_ * columns[i]);
      list.push_back({context.arena.template allocate<Compute>(end, {most}).data(), {rows_, columns[i]}});
    }
    return list;
  }
  template <class B>
  Matrices inputs_in_rows(Context& context, const B& block, const Unit& unit, int part, const Matrices& first) {
    const auto elements = elements_in_rows(block, unit, part);
    Matrices list;
    for (std::size_t i = 0; i < B::inputs; ++i)
      list.push_back(part > 0 && is_common<B>(i)
                         ? first[i]
                         : context.arena.template allocate<Compute>(Arena::End::high, {elements[i]}));
    return list;
  }
  template <class B>
  static constexpr bool is_common(std::size_t input) {
    return input + nn::common_inputs<B>() >= B::inputs;
  }
  template <class B>
  std::array<std::int64_t, B::inputs> elements_in_rows(const B& block, const Unit& unit, int part) {
    std::array<std::int64_t, B::inputs> elements{};
    for (const nn::HeadRange& range : ranges_of_part(unit, part))
      for (std::size_t i = 0; i < B::inputs; ++i) elements[i] += own_rows() * block.input_columns(range)[i];
    return elements;
  }
  template <class B>
  Tensor<Compute> output_in_heads(Context& context, typename Arena::End end, const B& block, nn::HeadRange range) {
    return context.arena.template allocate<Compute>(end, {rows_, block.output_columns(range)});
  }
  /// @}

  /// Begins a forward, or its repetition in backward. `keeps`: what the middle reads and makes stays for backward.
  template <class B, class Saved>
  void begin(Context& rows, const B& block, Saved& saved, Unit& unit, bool keeps) {
    const int parts = static_cast<int>(unit.parts.size());
    unit.ranges = nn::equal_ranges(block.shares(), ranks(), parts);
    saved.heads.resize(unit.parts.size());
    exchanges_.begin(parts);
    keeps_ = keeps;
    low_ = rows.arena.mark(Arena::End::low);
    for (int part = 0; part < parts; ++part) {
      Part& own = unit.parts[static_cast<std::size_t>(part)];
      std::int64_t columns = 0;
      for (const nn::HeadRange& range : ranges_of_part(unit, part)) columns += block.output_columns(range);
      own.rows = rows.template save<Compute>({own_rows() * columns});
      if (!keeps) continue;
      own.in = inputs_in_heads(rows, Arena::End::low, block, unit, part, unit.parts[0].in);
      own.out = output_in_heads(rows, Arena::End::low, block, range_of(unit, part));
    }
    high_ = rows.arena.mark(Arena::End::high);
    for (int part = 0; part < std::min(parts, 2); ++part) {
      ring_[static_cast<std::size_t>(part)].rows = inputs_in_rows(rows, block, unit, part, ring_[0].rows);
      if (!keeps) allocate_in_heads(rows, block, unit, part);
    }
  }
  /// Begins the middle's backward.
  template <class B>
  void begin_gradients(Context& rows, const B& block, Unit& unit) {
    const int parts = static_cast<int>(unit.parts.size());
    exchanges_.begin(parts);
    high_ = rows.arena.mark(Arena::End::high);
    for (int part = 0; part < std::min(parts, 2); ++part) allocate_in_heads(rows, block, unit, part);
  }
  template <class B>
  void allocate_in_heads(Context& rows, const B& block, const Unit& unit, int part) {
    Ring& ring = ring_[static_cast<std::size_t>(part)];
    ring.in = inputs_in_heads(rows, Arena::End::high, block, unit, part, ring_[0].in);
    ring.out = output_in_heads(rows, Arena::End::high, block, range_of(unit, part));
  }
  /// Waits for all exchanges of the last kind and releases what was on its way.
  void end_middle(Context& rows, sharding::Step last) {
    exchanges_.wait(module_.stream(), last);
    rows.arena.release(Arena::End::high, high_);
  }

  /// Computes a stage before the last exchange of a forward, or of its repetition.
  template <class B, class Saved, class Shared, class WeightsOf>
  void compute_middle(Context& rows, const sharding::Stage& at, const B& block, Saved& saved, Unit& unit,
                      const Shared& shared, WeightsOf weights_of) {
    const auto part = static_cast<std::size_t>(at.part);
    Ring& ring = ring_[part % 2];
    Part& own = unit.parts[part];
    if (at.step == sharding::Step::before) {
      if (!keeps_) own.in = ring.in, own.out = ring.out;
      const std::vector<nn::HeadRange> ranges = ranges_of_part(unit, at.part);
      block.before(rows, shared, weights_of(block), saved.rows, unit.x, part_of(ranges, at.part, unit),
                   matrices(block, ranges, moved(block, unit, at, ring.rows)));
      return;
    }
    exchanges_.wait(module_.stream(), sharding::Step::to_heads, at.part);
    const auto mark = rows.arena.mark(Arena::End::low);
    block.between(*whole_, shared, weights_of(block), saved.heads[part], range_of(unit, at.part),
                  inputs_of(block, own.in), own.out);
    if (!keeps_) rows.arena.release(Arena::End::low, mark);
  }

  /// Starts the exchange of a task: From is where `from` is; as many of `to` get the other placement.
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
      sent.push_back(counts_of<From>(unit, at.part, columns));
      received.push_back(counts_of<buffer::OtherPlacement<From>>(unit, at.part, columns));
    }
    exchanges_.template start<From>(*module_.sequence_axis(), module_.stream(), at, task.index, from, std::move(sent),
                                    to, std::move(received));
  }
  /// Elements of each rank's part of an activation in a placement. `columns(range)`: of a matrix of these heads.
  template <buffer::SequencePlacement P, class Columns>
  std::vector<std::int64_t> counts_of(const Unit& unit, int part, Columns columns) {
    std::vector<std::int64_t> counts;
    for (int r = 0; r < ranks(); ++r) {
      if constexpr (std::is_same_v<P, buffer::OwnRows>)
        counts.push_back(own_rows() * columns(range_of(unit, r, part)));
      else
        counts.push_back(rows_of_rank(r) * columns(range_of(unit, part)));
    }
    return counts;
  }

  Module& module_;
  const std::vector<Block>& blocks_;
  SequenceGroup group_;
  std::vector<Unit> units_;
  std::vector<detail::StagesSaved<Block>> saved_;
  std::optional<Context> whole_;  ///< of the micro-batch
  std::int64_t rows_ = 0;         ///< of the micro-batch: N
  std::array<Ring, 2> ring_;
  SequenceExchanges<Comm, Compute> exchanges_;
  typename Arena::Mark low_;   ///< below what the current forward has saved
  typename Arena::Mark high_;  ///< below what is on its way
  bool keeps_ = false;         ///< of the current forward: the middle is kept for backward
};

}  // namespace fsdp
