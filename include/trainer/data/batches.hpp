// SPDX-License-Identifier: Apache-2.0
/// @file
/// One rank's micro-batches of a step, in host memory that every step reuses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/data/source.hpp>

namespace fsdp::train {

/// Buffers for the micro-batches of one step. `draw` and `fill` overwrite them.
template <data::Source Source>
class Batches {
 public:
  using Batch = typename Source::Batch;
  static_assert(nn::check_batch_parts<Batch>());

  /// The source must outlive it.
  Batches(const Source& source, std::int64_t sequences, int micro_batches, data::Allocate allocate)
      : source_(&source), batches_(static_cast<std::size_t>(micro_batches)) {
    for (int m = 0; m < micro_batches; ++m) storages_.push_back(source.storage(sequences, allocate));
  }

  /// Fills all micro-batches with this rank's share of the sampler's current step. Throws InputError if the source
  /// cannot read its data.
  void draw(const data::Sampler& sampler, std::int64_t rank, std::int64_t ranks) {
    const std::int64_t count = std::ssize(batches_);
    for (std::size_t m = 0; m < batches_.size(); ++m) {
      const data::Share share{
          .rank = rank, .ranks = ranks, .micro_batch = static_cast<std::int64_t>(m), .micro_batches = count};
      fill(m, sampler.slice(share));
      if constexpr (nn::detail::has_set_noise<Batch>())
        batches_[m].set_noise(std::max<std::uint64_t>(mixed(sampler.seed()), 1), sampler.place(share));  // 0: no noise
    }
  }
  /// Fills the first micro-batch with the given samples and returns it. If there are fewer samples than sequences, the
  /// remaining sequences have no targets.
  const Batch& fill(std::span<const std::int64_t> samples) {
    fill(0, samples);
    return batches_.front();
  }

  std::span<const Batch> micro_batches() const { return batches_; }
  BatchCounts counts() const {
    BatchCounts sum;
    for (const Batch& batch : batches_) sum += batch.counts();
    return sum;
  }

 private:
  void fill(std::size_t micro_batch, std::span<const std::int64_t> samples) {
    batches_[micro_batch] = source_->fill(storages_[micro_batch], samples);
  }

  const Source* source_;
  std::vector<typename Source::Storage> storages_;  // [micro_batches]
  std::vector<Batch> batches_;                      // [micro_batches]
};

}  // namespace fsdp::train
