// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory for timed collectives of float tensors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/device/memory.hpp>

namespace fsdp::calibrate {

/// The sizes of one rank's tensors for collectives: one tensor for each call of a sample, divided into nearly equal
/// pieces. Since each call has its own tensor, the tensor is not in the caches, as in a training step.
class CollectiveSizes {
 public:
  CollectiveSizes(std::int64_t bytes, int rank, int ranks);

  /// Number of calls in one sample, which then takes some milliseconds.
  int calls() const { return calls_; }
  std::int64_t bytes() const { return elements_ * 4; }  ///< bytes of one tensor
  std::int64_t own_bytes() const { return counts_[rank_] * 4; }
  std::int64_t exchanged_bytes() const { return own_bytes() * std::ssize(counts_); }  ///< bytes that this rank receives

 protected:
  std::int64_t elements_;
  int calls_;
  std::size_t rank_;
  std::vector<std::int64_t> counts_, received_counts_;
  std::int64_t begin_ = 0;
  /// Number of elements from one call's tensor to the next.
  std::int64_t full_stride_ = 0, shard_stride_ = 0, received_stride_ = 0;
};

/// The tensors with their memory.
template <class Device>
class CollectiveBuffers : public CollectiveSizes {
 public:
  /// `memory(bytes)` returns a communicator's shared memory, or nullptr.
  template <class Memory>
  CollectiveBuffers(std::int64_t bytes, int rank, int ranks, Memory memory) : CollectiveSizes(bytes, rank, ranks) {
    const auto block = [&](std::int64_t elements) {
      const std::int64_t size = elements * calls_ * 4;
      return Block(ledger_, device::MemoryKind::scratch, size, memory(size));
    };
    full_ = block(full_stride_);
    shard_ = block(shard_stride_);
    received_ = Block(ledger_, device::MemoryKind::scratch, received_stride_ * calls_ * 4, nullptr);
    if constexpr (Device::host_memory) touch();
  }
  CollectiveBuffers(const CollectiveBuffers&) = delete;
  CollectiveBuffers& operator=(const CollectiveBuffers&) = delete;

  /// Returns segments whose local piece is outside of the full tensor, like a shard at rest.
  std::vector<comm::Segment<float>> apart(int call) const { return {{shard(call), full(call), counts_}}; }
  /// Returns segments whose local piece aliases its range of the full tensor.
  std::vector<comm::Segment<float>> in_place(int call) const { return {{full(call) + begin_, full(call), counts_}}; }
  /// Returns an exchange of the full tensor's pieces: each rank receives its own piece from all ranks, in separate
  /// memory.
  std::vector<comm::Exchange<float>> exchange(int call) const {
    return {{full(call), counts_, received(call), received_counts_}};
  }
  /// Returns the part of the full tensor that has equal pieces, which MPI's collectives need: up to ranks - 1 elements
  /// are omitted.
  std::span<float> whole(int call) const { return {full(call), equal_piece() * counts_.size()}; }
  std::span<float> piece(int call) const { return {shard(call), equal_piece()}; }

 private:
  using Block = device::Block<Device>;

  float* full(int call) const { return reinterpret_cast<float*>(full_.data()) + call * full_stride_; }
  float* received(int call) const { return reinterpret_cast<float*>(received_.data()) + call * received_stride_; }
  float* shard(int call) const { return reinterpret_cast<float*>(shard_.data()) + call * shard_stride_; }
  std::size_t equal_piece() const { return static_cast<std::size_t>(elements_) / counts_.size(); }
  /// Writes all memory once, so that every page is allocated. Zeros remain zeros, however often they are summed.
  void touch() {
    for (const Block* block : {&full_, &shard_, &received_}) std::fill_n(block->data(), block->bytes(), std::byte{0});
  }

  device::Ledger ledger_;
  Block full_, shard_, received_;
};

}  // namespace fsdp::calibrate
