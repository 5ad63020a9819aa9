// SPDX-License-Identifier: Apache-2.0
/// @file
/// Windows of text as the tensors of micro-batches; host memory that is filled anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <fsdp/data/sampler.hpp>
#include <fsdp/data/windows.hpp>
#include <fsdp/module/count_exchange.hpp>
#include <fsdp/module/sharded_module.hpp>

namespace fsdp::train {

BatchCounts counts_of(std::span<const MicroBatch> micro_batches);

/// One rank's tokens and targets of one step.
class Batches {
 public:
  /// Zeroed memory of so many bytes.
  using Allocate = std::shared_ptr<std::byte> (*)(std::int64_t bytes);

  /// `separator`: a byte that ends a document; without one every window is a document.
  Batches(const data::Windows& windows, std::int64_t sequences, int micro_batches,
          std::optional<std::int64_t> separator, Allocate allocate);

  /// This rank's share of the sampler's step.
  void draw(const data::Sampler& sampler, std::int64_t rank, std::int64_t ranks);
  /// Given windows as one micro-batch; what is missing to `sequences` is repeated with ignored targets.
  const MicroBatch& fill(std::span<const std::int64_t> windows);

  std::span<const MicroBatch> micro_batches() const { return micro_batches_; }

 private:
  void fill(std::size_t micro_batch, std::span<const std::int64_t> windows);

  const data::Windows* windows_;
  std::int64_t sequences_;
  std::optional<std::int64_t> separator_;
  std::shared_ptr<std::byte> memory_;
  std::int32_t *tokens_, *targets_;                   // [micro_batches, sequences, S]
  std::vector<std::vector<std::int64_t>> documents_;  // [micro_batches][documents + 1]
  std::vector<MicroBatch> micro_batches_;
};

}  // namespace fsdp::train
