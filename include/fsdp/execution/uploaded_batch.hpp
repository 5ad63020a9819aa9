// SPDX-License-Identifier: Apache-2.0
/// @file
/// Micro-batches in memory that the device can read, and the object that owns that memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>

namespace fsdp {

/// Micro-batches in the activation arena. Micro-batches of equal sizes have equal addresses, so that captured steps can
/// be replayed. The destructor releases the memory; construct the next object only after that.
template <class BatchT, class L>
class Uploaded {
 public:
  using End = typename L::Arena::End;
  struct MicroBatch {
    BatchT host;  ///< the host batch; its memory must stay valid until the device has read it
    nn::UploadedBatch<BatchT, L> device;
  };

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

  std::size_t size() const { return batches_.size(); }
  /// Returns the largest number of sequences of any micro-batch.
  std::int64_t most_sequences() const {
    std::int64_t most = 0;
    for (const MicroBatch& batch : batches_) most = std::max<std::int64_t>(most, batch.host.sequences);
    return most;
  }
  const MicroBatch& operator[](int index) const { return batches_[static_cast<std::size_t>(index)]; }

 private:
  typename L::Arena* arena_;
  typename L::Arena::Mark mark_;
  std::vector<MicroBatch> batches_;
};

}  // namespace fsdp
