// SPDX-License-Identifier: Apache-2.0
/// @file
/// The data of passes on the device: uploaded micro-batches; and for generation token by token the blocks' caches, and
/// a pass that adds one token to each sequence.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/one_of.hpp>

namespace fsdp {

/// Micro-batches in the activation arena. Micro-batches of equal sizes have equal addresses, so that captured steps can
/// be replayed. The destructor releases the memory; construct the next object only after that.
template <class BatchT, class L>
class Uploaded {
 public:
  using End = typename L::Arena::End;
  /// One of the micro-batches, in host memory and in memory that the device can read.
  struct MicroBatch {
    BatchT host;  ///< the host batch; its memory must stay valid until the device has read it
    nn::UploadedBatch<BatchT, L> device;
  };

  /// Copies the batches to the arena of `context`, which must outlive this object.
  Uploaded(nn::Context<L>& context, std::span<const BatchT> batches)
      : arena_(&context.arena), mark_(arena_->mark(End::low)) {
    batches_.reserve(batches.size());
    for (const BatchT& batch : batches) batches_.push_back({batch, batch.upload(context)});
  }
  Uploaded(Uploaded&& other) noexcept
      : arena_(std::exchange(other.arena_, nullptr)), mark_(other.mark_), batches_(std::move(other.batches_)) {}
  Uploaded& operator=(Uploaded&&) = delete;
  ~Uploaded() {
    if (arena_ != nullptr) arena_->release(End::low, mark_);
  }

  /// Returns the number of micro-batches.
  std::size_t size() const { return batches_.size(); }
  /// Returns the largest number of sequences of any micro-batch.
  std::int64_t most_sequences() const {
    std::int64_t most = 0;
    for (const MicroBatch& batch : batches_) most = std::max<std::int64_t>(most, batch.host.sequences);
    return most;
  }
  /// Returns a micro-batch, in their order.
  const MicroBatch& operator[](int index) const { return batches_[static_cast<std::size_t>(index)]; }

 private:
  typename L::Arena* arena_;
  typename L::Arena::Mark mark_;
  std::vector<MicroBatch> batches_;
};

/// The cache of each block [cached rows, its columns].
template <class Block, class L>
class SequenceCache {
 public:
  using Compute = typename L::Compute;
  /// Whether the model's blocks have caches from which they can continue sequences.
  static constexpr bool possible = nn::all_kinds_cache<Block, L>;

  /// Allocates the tensors, if `rows` > 0. Throws LogicError for blocks that cannot continue sequences.
  SequenceCache(device::Ledger& ledger, const std::vector<Block>& blocks, std::int64_t rows) {
    if (rows > 0) allocate(ledger, blocks, rows);
  }

  /// Whether there is no cache.
  bool empty() const { return tensors_.empty(); }
  /// Returns a block's cache.
  Tensor<Compute> of(std::size_t block) const { return tensors_[block]; }

 private:
  void allocate(device::Ledger& ledger, const std::vector<Block>& blocks, std::int64_t rows) {
    if constexpr (possible) {
      for (const Block& block : blocks) {
        const std::int64_t columns = nn::visit_kind(block, [](const auto& kind) { return kind.cache_columns(); });
        require<InputError>(columns >= 0, "model: a block has ", columns,
                            " cache columns; cache_columns() is at least 0");
        const Shape shape{rows, columns};
        const std::int64_t bytes = checked_multiply(checked_multiply(rows, columns), std::int64_t{sizeof(Compute)});
        memory_.push_back(device::Block<typename L::Device>(ledger, device::MemoryKind::cache, bytes));
        tensors_.push_back({reinterpret_cast<Compute*>(memory_.back().data()), shape});
      }
    } else {
      throw LogicError(
          "executor: cached_rows are asked for, and blocks of this model cannot continue sequences; give "
          "them cache_columns() and extend (nn::CachingBlock)");
    }
  }

  std::vector<device::Block<typename L::Device>> memory_;
  std::vector<Tensor<Compute>> tensors_;
};

/// A scope in which `context` describes a pass over one token of each sequence, at `positions` [sequences].
template <class Local>
class OneTokenEach {
 public:
  /// `context` must outlive it; the positions are copied to the device.
  OneTokenEach(nn::Context<Local>& context, std::span<const std::int32_t> positions)
      : context_(context),
        mark_(context.arena.mark(End::low)),
        sequence_length_(std::exchange(context.sequence_length, 1)) {
    const std::int64_t count = std::ssize(positions);
    context.sequences = count;
    context.positions = {positions, nn::on_device(context, Tensor<const std::int32_t>(positions.data(), {count}))};
  }
  OneTokenEach(const OneTokenEach&) = delete;
  OneTokenEach& operator=(const OneTokenEach&) = delete;
  ~OneTokenEach() {
    context_.positions = {};
    context_.sequence_length = sequence_length_;
    context_.arena.release(End::low, mark_);
  }

 private:
  using Arena = typename Local::Device::Arena;
  using End = typename Arena::End;

  nn::Context<Local>& context_;
  typename Arena::Mark mark_;
  std::int64_t sequence_length_;
};

}  // namespace fsdp
