// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory of a block's stages if several ranks share a sequence, and views of it for the stages.
///
/// Saved tensors of a unit are allocated at the arena's low end. Matrices in flight are at the high end, from a
/// computation's first stage until the end of its middle. There are two matrices of each kind, which the parts of the
/// middle use alternately.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/buffer/sequence.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/stages.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>

namespace fsdp {

/// The buffers that the stages of one unit at a time read and write. There are K ranks. In the placement "own heads", a
/// rank has all N rows of a micro-batch for its own heads; in the placement "own rows", it has its own T rows for all
/// heads.
template <class Local, class ArenaT>
class StageMemory {
 public:
  using Arena = ArenaT;
  using Compute = typename Local::Compute;
  using Context = nn::Context<Local>;
  using Matrices = std::vector<Tensor<Compute>>;

  /// Memory of a part of the middle.
  struct Part {
    Matrices in;           // [inputs][N, columns]; finally their gradient in own rows, [inputs][K][T, columns]
    Tensor<Compute> out;   // [N, columns]
    Tensor<Compute> rows;  // out in own rows: [K][T, columns]; in backward its gradient
  };
  /// The inputs and outputs of the stages of a unit.
  struct Unit {
    Tensor<const Compute> x;            // [T, H]
    std::vector<nn::HeadRange> ranges;  // [K * parts]: part p of rank r is range r * parts + p
    std::vector<Part> parts;
  };
  /// Buffers in flight: inputs of the middle, or their gradients.
  struct Ring {
    Matrices rows;        // [inputs][K][T, columns]; only in forward
    Matrices in;          // [inputs][N, columns]; in forward only if not saved; in backward the gradient
    Tensor<Compute> out;  // [N, columns]; only if not saved; in backward the gradient
  };

  /// `group`: this rank's group of ranks that share sequences.
  explicit StageMemory(SequenceGroup group) : group_(group) {}

  /// Ranks that share a sequence, and this one's number among them.
  /// @{
  int ranks() const { return group_.size; }
  int rank() const { return group_.member; }
  /// @}
  /// Sets the number of rows of a micro-batch, N.
  void set_rows(std::int64_t rows) { rows_ = rows; }
  /// Returns a part's buffers in flight.
  Ring& ring(int part) { return ring_[static_cast<std::size_t>(part % 2)]; }
  /// Whether the middle's inputs and outputs of the current forward are saved for backward.
  bool keeps() const { return keeps_; }

  /// Begins a forward, or its repetition in backward. `keeps`: whether the middle's inputs and outputs are saved for
  /// backward.
  template <class B>
  void begin(Context& rows, const B& block, Unit& unit, bool keeps) {
    const int parts = static_cast<int>(unit.parts.size());
    unit.ranges = nn::equal_ranges(block.shares(), ranks(), parts);
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
    high_ = rows.arena.mark(Arena::End::high);
    for (int part = 0; part < std::min(parts, 2); ++part) allocate_in_heads(rows, block, unit, part);
  }
  /// Releases the buffers in flight.
  void end_middle(Context& rows) { rows.arena.release(Arena::End::high, high_); }
  /// Releases the saved tensors of a forward without a backward.
  void release_saved(Context& rows) { rows.arena.release(Arena::End::low, low_); }

  /// Return the heads of a part: of this rank, of another rank, and of all ranks in order.
  /// @{
  nn::HeadRange range_of(const Unit& unit, int part) const { return range_of(unit, rank(), part); }
  static nn::HeadRange range_of(const Unit& unit, int rank, int part) {
    return unit.ranges[static_cast<std::size_t>(rank) * unit.parts.size() + static_cast<std::size_t>(part)];
  }
  std::vector<nn::HeadRange> ranges_of_part(const Unit& unit, int part) const {
    std::vector<nn::HeadRange> list;
    for (int r = 0; r < ranks(); ++r) list.push_back(range_of(unit, r, part));
    return list;
  }
  /// @}
  /// Returns a part as an argument for stages, with the ranges of all ranks.
  static nn::Part part_of(const std::vector<nn::HeadRange>& ranges, int part, const Unit& unit) {
    return {.ranges = ranges, .index = part, .count = static_cast<int>(unit.parts.size())};
  }
  /// Return the number of rows of this rank, or of another rank that shares the sequences.
  /// @{
  std::int64_t own_rows() const { return rows_of_rank(rank()); }
  std::int64_t rows_of_rank(int rank) const {
    const nn::RowRange range = nn::rows_of_part(rows_, rank, ranks());
    return range.end - range.begin;
  }
  /// @}

  /// Return views of flat memory as arguments for the block's stages.
  /// @{
  template <class B>
  static nn::StageInputs<B> inputs_of(const B&, const Matrices& list) {
    nn::StageInputs<B> inputs;
    std::copy_n(list.begin(), B::inputs, inputs.begin());
    return inputs;
  }
  /// Returns the inputs of a part, or their gradients, that are computed or exchanged with this part. Common inputs
  /// belong to the first part in forward, and to the last part in backward.
  template <class B>
  static Matrices moved(const B&, const Unit& unit, const sharding::Stage& at, Matrices list) {
    const bool gradients = at.step == sharding::Step::gradient_to_rows || at.step == sharding::Step::before_backward;
    const int with = gradients ? static_cast<int>(unit.parts.size()) - 1 : 0;
    if (at.part != with) list.resize(B::inputs - nn::common_inputs<B>());
    return list;
  }
  /// Returns the matrices for each rank, [K][inputs]; a matrix is empty if it is absent from `flat`.
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
  /// Returns the middle's outputs in this rank's rows, [K * parts], in the order of Unit::ranges.
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

  /// Returns the number of elements of each rank's part of an activation in a placement. `columns(range)` returns the
  /// number of columns of a matrix of these heads.
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

 private:
  /// Allocate a part's inputs or outputs, in own rows of all heads or in all rows of own heads. Common inputs are taken
  /// from the first part, `first`.
  /// @{
  /// Inputs in own heads have room for the gradients in own rows, which later overwrite them.
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

  template <class B>
  void allocate_in_heads(Context& rows, const B& block, const Unit& unit, int part) {
    Ring& ring = ring_[static_cast<std::size_t>(part)];
    ring.in = inputs_in_heads(rows, Arena::End::high, block, unit, part, ring_[0].in);
    ring.out = output_in_heads(rows, Arena::End::high, block, range_of(unit, part));
  }
  SequenceGroup group_;
  std::int64_t rows_ = 0;  ///< number of rows of the micro-batch: N
  std::array<Ring, 2> ring_;
  typename Arena::Mark low_;   ///< arena mark below the tensors that the current forward has saved
  typename Arena::Mark high_;  ///< arena mark below the buffers in flight
  bool keeps_ = false;
};

}  // namespace fsdp
