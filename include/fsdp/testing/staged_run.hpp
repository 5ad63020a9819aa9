// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs a block's stages (tessera/fsdp/nn/stages.hpp) for several ranks in one thread, which copies between them the
/// data that an executor would exchange. Contains no tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/stages.hpp>
#include <tessera/fsdp/sequence/staged_block.hpp>
#include <tessera/fsdp/testing/module_run.hpp>

namespace fsdp::testing {

/// The number of ranks among which the rows of a micro-batch are divided, and the number of parts of the middle stage.
struct Sharing {
  int ranks = 1;
  int parts = 1;

  /// Returns both numbers as text, for messages.
  std::string in_words() const {
    return message("ranks that share the rows: ", ranks, ", parts of the middle: ", parts);
  }
};

/// The ranks of a block that declares its stages. `Whole` is a ModuleRun of the block; the ranks use its weights, its
/// context's shape and the data that the model's entry creates.
template <class Whole>
class StagedRun {
 public:
  using Module = nn::StagedOf<typename Whole::Module>;
  using L = typename Whole::L;
  using Device = typename L::Device;
  using Compute = typename L::Compute;
  using Inputs = nn::StageInputs<Module>;

  /// Creates the ranks of `whole`, which must outlive this object.
  StagedRun(Whole& whole, const Sharing& sharing)
      : whole_(&whole),
        parts_(static_cast<std::size_t>(sharing.parts)),
        ranges_(nn::equal_ranges(stages_of(whole).shares(), sharing.ranks, sharing.parts)) {
    for (int rank = 0; rank < sharing.ranks; ++rank)
      ranks_.push_back(std::make_unique<Rank>(*this, rank, sharing.ranks));
  }

  /// Computes y of all rows from x of all rows, in the memory of `whole`.
  void forward() {
    for (auto& rank : ranks_) {
      rank->stream.poison();
      rank->outs.poison();
      copy_rows(*rank, rank->stream[0], whole_->stream[0], true);
    }
    run_forward([&](Rank& rank, const auto& outs) {
      module().after(rank.rows, whole_->shared, weights(), rank.saved, rank.stream[0], ranges_, outs, rank.stream[1]);
    });
    for (auto& rank : ranks_) {
      if (recomputes()) rank->release();
      copy_rows(*rank, rank->stream[1], whole_->stream[1], false);
    }
  }

  /// Computes dx in place of dy for all rows, in the memory of `whole`. Each rank retains its gradients of the weights.
  void backward() {
    for (auto& rank : ranks_) {
      rank->stream.poison();
      for (const std::size_t i : {0, 2}) copy_rows(*rank, rank->stream[i], whole_->stream[i], true);
    }
    if (recomputes())
      run_forward([&](Rank& rank, const auto& outs) {
        module().after_again(rank.rows, whole_->shared, weights(), rank.saved, rank.stream[0], ranges_, outs);
      });
    for (auto& rank : ranks_) {
      const std::vector<Tensor<Compute>> outs = rank->out_views();
      module().after_backward(rank->rows, whole_->shared, weights(), rank->gradients(), rank->saved, ranges_, outs,
                              rank->stream[2], outs);
    }
    for (std::size_t part = 0; part < parts_; ++part) {
      for (auto& rank : ranks_) rank->middle[part].got[true].poison();
      exchange_outputs(part, true);
      for (auto& rank : ranks_) {
        module().between_backward(rank->all, whole_->shared, weights(), rank->gradients(), rank->middle[part].saved,
                                  rank->middle[part].range, rank->inputs(false, part), rank->output(false, part),
                                  rank->output(true, part), rank->inputs(true, part));
        rank->poison();
        rank->middle[part].sent.poison();
      }
      exchange_inputs(part, true);
      const std::vector<nn::HeadRange> ranges = ranges_of(part);
      for (auto& rank : ranks_) {
        module().before_backward(rank->rows, whole_->shared, weights(), rank->gradients(), rank->saved,
                                 part_of(ranges, part), rank->sent_views(true, part), rank->stream[2]);
        rank->poison();
      }
    }
    for (auto& rank : ranks_) {
      copy_rows(*rank, rank->stream[2], whole_->stream[2], false);
      rank->release();
    }
  }

  /// Returns the gradients, summed over the ranks.
  std::vector<Numbers> gradients() {
    std::vector<Numbers> sums = ranks_[0]->fields.gradients.all_values();
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) add_to(sums, ranks_[rank]->fields.gradients.all_values());
    return sums;
  }
  /// Whether all temporary memory is free, and memory that no tensor uses is unchanged.
  bool clean() const {
    return std::ranges::all_of(ranks_, [](const auto& rank) {
      return rank->memory.high_end() == rank->high && rank->memory.low_end() == rank->low.offset &&
             rank->memory.sentinels_untouched() && rank->fields.gradients.guards_untouched() &&
             rank->stream.guards_untouched();
    });
  }
  bool poisons = false;  ///< whether free memory is filled with NaN between stages

  /// For a rank, without the exchanged matrices: the bytes that it retains for backward, its peak bytes, and its
  /// counted cost.
  /// @{
  std::int64_t kept(std::size_t rank) const { return ranks_[rank]->memory.low_end() - ranks_[rank]->low.offset; }
  std::int64_t peak(std::size_t rank) const { return ranks_[rank]->memory.arena.peak(); }
  const device::Counters& counters(std::size_t rank) const { return ranks_[rank]->memory.stream.counters; }
  /// @}

 private:
  using Arena = typename Device::Arena;
  static constexpr std::size_t common = nn::common_inputs<Module>();

  /// A rank's range of one part of the middle.
  struct Middle {
    nn::HeadRange range;
    Slot<Device, Compute> sent;                // inputs of this rank's rows, for each destination rank
    std::array<Slot<Device, Compute>, 2> got;  // inputs and output of all rows, and their gradients
    typename Module::HeadsSaved saved;
  };

  struct Rank {
    Rank(StagedRun& run, int index, int count)
        : run(&run),
          begin(nn::rows_of_part(run.whole_->context.tokens(), index, count).begin),
          tokens(nn::rows_of_part(run.whole_->context.tokens(), index, count).end - begin),
          memory(1, run.whole_->rank.arena.capacity()),
          fields(run.module(), Placing::adjacent),
          stream(std::vector<Shape>(3, {tokens, run.whole_->stream[0].columns()}), Placing::padded),
          outs(run.output_shapes(tokens), Placing::padded),
          rows(context(true)),
          all(context(false)),
          low(memory.arena.mark(Arena::End::low)),
          high(memory.high_end()) {
      for (std::size_t part = 0; part < run.parts_; ++part) {
        const nn::HeadRange& range = run.ranges_[static_cast<std::size_t>(index) * run.parts_ + part];
        std::vector<Shape> to_each, of_all;
        for (const nn::HeadRange& each : run.ranges_of(part)) run.add_inputs(to_each, tokens, each);
        run.add_inputs(of_all, all.tokens(), range);
        of_all.push_back({all.tokens(), run.module().output_columns(range)});
        const Slot<Device, Compute> got(of_all, Placing::padded);
        middle.push_back({.range = range, .sent = {to_each, Placing::padded}, .got = {got, got}, .saved = {}});
      }
    }

    /// Inputs (of all rows) and output of the middle stage, or their gradients. Common inputs are stored with the first
    /// part.
    /// @{
    Inputs inputs(bool of_gradients, std::size_t part) {
      const auto of = [&](Middle& each) { return run->inputs_of(each.got[of_gradients], 0, each.range); };
      Inputs views = of(middle[part]);
      const Inputs first = of(middle[0]);
      std::copy_n(first.end() - common, common, views.end() - common);
      return views;
    }
    Tensor<Compute> output(bool of_gradients, std::size_t part) {
      return middle[part].got[of_gradients][run->alone() ? 1 : Module::inputs];
    }
    /// @}
    /// Views of this rank's rows of the inputs, or of their gradients, for each destination rank. The common inputs are
    /// sent with the first part, their gradients with the last.
    std::vector<Inputs> sent_views(bool of_gradients, std::size_t part) {
      const std::vector<nn::HeadRange> ranges = run->ranges_of(part);
      std::vector<Inputs> views(ranges.size());
      for (std::size_t to = 0; to < views.size(); ++to) {
        views[to] = run->inputs_of(middle[part].sent, to, ranges[to]);
        if (part != (of_gradients ? run->parts_ - 1 : 0))
          std::fill_n(views[to].end() - common, common, Tensor<Compute>());
      }
      return views;
    }
    std::vector<Tensor<Compute>> out_views() {
      std::vector<Tensor<Compute>> views;
      for (std::size_t i = 0; i < run->ranges_.size(); ++i) views.push_back(outs[i]);
      return views;
    }
    typename Module::Gradients gradients() { return fields.gradient_views(); }
    void poison() {
      if (run->poisons) memory.poison_free_memory();
    }
    void release() { memory.arena.release(Arena::End::low, low); }

    nn::Context<L> context(bool own) {
      const nn::Context<L>& whole = run->whole_->context;
      nn::Context<L> mine{.arena = memory.arena,
                          .stream = memory.stream,
                          .plans = whole.plans,
                          .sequences = own ? 1 : whole.sequences,
                          .sequence_length = own ? tokens : whole.sequence_length,
                          .noise = whole.noise,
                          .training = whole.training};
      if (own)
        mine.noise.first_row += begin;
      else
        mine.documents = whole.documents;
      return mine;
    }

    StagedRun* run;
    std::int64_t begin, tokens;  ///< its rows
    TestRank<Device> memory;
    ModuleFields<Device, Module> fields;
    Slot<Device, Compute> stream;  // x, y, dy: [T, H] each
    Slot<Device, Compute> outs;    // [T, columns of the range] for each range
    nn::Context<L> rows, all;
    typename Module::RowsSaved saved{};
    std::vector<Middle> middle;  ///< for each part
    typename Arena::Mark low;
    std::int64_t high;
  };

  /// Returns the object that declares the block's stages, by the overload of `staged` in the block's namespace if it
  /// has one.
  static decltype(auto) stages_of(const Whole& whole) {
    using nn::staged;
    return staged(whole.module);
  }
  decltype(auto) module() const { return stages_of(*whole_); }
  auto weights() { return whole_->fields.weight_views(); }
  /// Whether there is one rank with one part: its inputs are then adjacent, as in the block's own forward and backward.
  bool alone() const { return ranges_.size() == 1; }
  bool recomputes() const { return nn::replays(whole_->module); }
  std::vector<nn::HeadRange> ranges_of(std::size_t part) const {
    std::vector<nn::HeadRange> list;
    for (std::size_t i = part; i < ranges_.size(); i += parts_) list.push_back(ranges_[i]);
    return list;
  }
  nn::Part part_of(const std::vector<nn::HeadRange>& ranges, std::size_t part) const {
    return {.ranges = ranges, .index = static_cast<int>(part), .count = static_cast<int>(parts_)};
  }
  void add_inputs(std::vector<Shape>& shapes, std::int64_t rows, const nn::HeadRange& range) const {
    const auto columns = module().input_columns(range);
    if (alone()) return shapes.push_back({rows, std::accumulate(columns.begin(), columns.end(), std::int64_t{0})});
    for (const std::int64_t each : columns) shapes.push_back({rows, each});
  }
  std::vector<Shape> output_shapes(std::int64_t rows) const {
    std::vector<Shape> shapes;
    for (const nn::HeadRange& range : ranges_) shapes.push_back({rows, module().output_columns(range)});
    return shapes;
  }
  /// Returns the matrices of add_inputs at index `index` of the slot.
  Inputs inputs_of(Slot<Device, Compute>& slot, std::size_t index, const nn::HeadRange& range) const {
    const auto columns = module().input_columns(range);
    Inputs views;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < Module::inputs; ++i) {
      views[i] = alone() ? slot[0].slice_columns(first, first + columns[i]) : slot[index * Module::inputs + i];
      first += columns[i];
    }
    return views;
  }
  /// Copies a rank's own rows from or to their place in the rows of all ranks.
  static void copy_rows(const Rank& rank, Tensor<Compute> own, Tensor<Compute> all, bool to_own) {
    for (std::int64_t row = 0; row < rank.tokens && !Device::counts_only; ++row) {
      Compute *from = own.row(row), *to = all.row(rank.begin + row);
      if (to_own) std::swap(from, to);
      std::copy_n(from, own.columns(), to);
    }
  }

  /// Copies the inputs of each rank's rows to every rank's inputs of all rows for its range. `back`: copies gradients
  /// in the opposite direction.
  void exchange_inputs(std::size_t part, bool back) {
    for (auto& rank : ranks_) {
      const std::vector<Inputs> own = rank->sent_views(back, part);
      for (std::size_t other = 0; other < ranks_.size(); ++other) {
        const Inputs all = ranks_[other]->inputs(back, part);
        for (std::size_t i = 0; i < Module::inputs && own[other][i].data() != nullptr; ++i)
          copy_rows(*rank, own[other][i], all[i], back);
      }
    }
  }
  /// Copies the output of all rows of each rank's range to every rank's rows of that range. `back`: copies gradients in
  /// the opposite direction.
  void exchange_outputs(std::size_t part, bool back) {
    for (auto& rank : ranks_)
      for (std::size_t other = 0; other < ranks_.size(); ++other)
        copy_rows(*rank, rank->outs[other * parts_ + part], ranks_[other]->output(back, part), !back);
  }

  /// Runs the stages up to the outputs of the middle stage, then finish(rank, outs).
  void run_forward(auto finish) {
    for (std::size_t part = 0; part < parts_; ++part) {
      const std::vector<nn::HeadRange> ranges = ranges_of(part);
      for (auto& rank : ranks_) {
        rank->middle[part].sent.poison();
        rank->middle[part].got[false].poison();
        rank->poison();
        module().before(rank->rows, whole_->shared, weights(), rank->saved, rank->stream[0], part_of(ranges, part),
                        rank->sent_views(false, part));
      }
      exchange_inputs(part, false);
      for (auto& rank : ranks_) {
        rank->poison();
        module().between(rank->all, whole_->shared, weights(), rank->middle[part].saved, rank->middle[part].range,
                         rank->inputs(false, part), rank->output(false, part));
      }
      exchange_outputs(part, false);
    }
    for (auto& rank : ranks_) {
      rank->poison();
      finish(*rank, rank->out_views());
    }
  }

  Whole* whole_;
  std::size_t parts_;
  std::vector<nn::HeadRange> ranges_;  ///< range of part p of rank r is at index r * parts + p
  std::vector<std::unique_ptr<Rank>> ranks_;
};

/// Runs a block's stages over micro-batches, as `outcome_of` runs the block; `whole` keeps its own gradients.
template <class Whole>
ModuleOutcome staged_outcome_of(Whole& whole, const Sharing& sharing, std::string_view where,
                                const std::vector<std::uint64_t>& seeds, bool& good) {
  StagedRun<Whole> run(whole, sharing);
  run.poisons = true;
  ModuleOutcome outcome = outcome_of(whole, where, seeds, good, run);
  outcome.gradients = run.gradients();
  if (good && !run.clean())
    good = fail("stages write what their contract says (tessera/fsdp/nn/stages.hpp), and keep only what they saved",
                where, "temporary memory is still taken, or memory of others was written");
  return outcome;
}

}  // namespace fsdp::testing
