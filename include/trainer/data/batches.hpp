// SPDX-License-Identifier: Apache-2.0
/// @file
/// The micro-batches of one rank's step, in host memory that all steps reuse. Each micro-batch is a piece of the step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/data/source.hpp>

namespace fsdp::train {

/// Buffers for the micro-batches of one step. `draw` and `fill` overwrite them.
template <data::Source Source>
class Batches {
 public:
  using Batch = typename Source::Batch;
  static_assert(nn::check_batch_parts<Batch>());

  /// `source` must outlive this object.
  Batches(const Source& source, std::int64_t sequences, int micro_batches, data::Allocate allocate)
      : source_(&source), batches_(static_cast<std::size_t>(micro_batches)) {
    for (int m = 0; m < micro_batches; ++m) storages_.push_back(source.storage(sequences, allocate));
  }

  /// Fills this rank's micro-batches of the sampler's current step. `pieces`: number of pieces of a step, whatever the
  /// number of ranks; the rank may then have no piece for its last micro-batch. 0: one piece for each micro-batch of
  /// each rank. If several ranks share each sequence, `rank` and `ranks` are the index of their group and the number of
  /// groups (SequenceGroup). Throws InputError if the source cannot read its data.
  void draw(const data::Sampler& sampler, int rank, int ranks, int pieces = 0) {
    const int all = pieces > 0 ? pieces : ranks * static_cast<int>(std::ssize(batches_));
    drawn_ = static_cast<std::size_t>(sharding::pieces_of_rank(all, rank, ranks));
    for (std::size_t m = 0; m < drawn_; ++m)
      draw(sampler, m, {.piece = sharding::piece_of(static_cast<int>(m), rank, ranks), .pieces = all});
  }
  /// Fills the first micro-batch with one piece of the sampler's current step and returns it. Throws as `draw` does.
  const Batch& draw_piece(const data::Sampler& sampler, int piece, int pieces) {
    draw(sampler, 0, {.piece = piece, .pieces = pieces});
    return batches_.front();
  }
  /// Fills the first micro-batch with samples and returns it. Sequences without a sample have no targets.
  const Batch& fill(std::span<const std::int64_t> samples) {
    fill(0, samples);
    return batches_.front();
  }

  std::span<const Batch> micro_batches() const { return std::span(batches_).first(drawn_); }  ///< the drawn ones
  /// Returns the sum of the counts of the drawn micro-batches over the rows of part `part` of `parts`.
  BatchCounts counts(int part = 0, int parts = 1) const {
    BatchCounts sum;
    for (const Batch& batch : micro_batches()) sum += nn::counts_of_part(batch, part, parts);
    return sum;
  }

 private:
  void draw(const data::Sampler& sampler, std::size_t micro_batch, const data::Share& share) {
    fill(micro_batch, sampler.slice(share));
    if constexpr (nn::detail::has_set_noise<Batch>())
      batches_[micro_batch].set_noise(std::max<std::uint64_t>(mixed(sampler.seed()), 1),  // 0 would mean no noise
                                      sampler.place(share));
  }
  void fill(std::size_t micro_batch, std::span<const std::int64_t> samples) {
    batches_[micro_batch] = source_->fill(storages_[micro_batch], samples);
  }

  const Source* source_;
  std::vector<typename Source::Storage> storages_;  // [micro_batches]
  std::vector<Batch> batches_;                      // [micro_batches]
  std::size_t drawn_ = 0;                           ///< number of micro-batches of the last `draw`
};

}  // namespace fsdp::train
