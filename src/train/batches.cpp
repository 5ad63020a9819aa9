// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/batches.hpp>

#include <algorithm>

#include <fsdp/device/operations.hpp>

namespace fsdp::train {

BatchCounts counts_of(std::span<const MicroBatch> micro_batches) {
  BatchCounts counts;
  for (const MicroBatch& batch : micro_batches) {
    counts.valid_targets += std::count_if(batch.targets.data(), batch.targets.data() + batch.targets.numel(),
                                          [](std::int32_t target) { return target >= 0; });
    const device::AttentionShape shape{
        .sequences = batch.sequences,
        .sequence_length = batch.tokens.numel() / std::max<std::int64_t>(batch.sequences, 1),
        .documents = batch.documents};
    counts.squares += shape.squares();
  }
  return counts;
}

Batches::Batches(const data::Windows& windows, std::int64_t sequences, int micro_batches,
                 std::optional<std::int64_t> separator, Allocate allocate)
    : windows_(&windows),
      sequences_(sequences),
      separator_(separator),
      memory_(allocate(2 * micro_batches * sequences * windows.seq_len() * std::int64_t{sizeof(std::int32_t)})),
      tokens_(reinterpret_cast<std::int32_t*>(memory_.get())),
      targets_(tokens_ + micro_batches * sequences * windows.seq_len()),
      documents_(static_cast<std::size_t>(micro_batches)) {
  const std::int64_t tokens = sequences * windows.seq_len();
  for (int m = 0; m < micro_batches; ++m)
    micro_batches_.push_back({.tokens = {tokens_ + m * tokens, {tokens}},
                              .targets = {targets_ + m * tokens, {tokens}},
                              .sequences = sequences});
}

void Batches::draw(const data::Sampler& sampler, std::int64_t rank, std::int64_t ranks) {
  const auto count = static_cast<std::int64_t>(micro_batches_.size());
  for (std::int64_t m = 0; m < count; ++m)
    fill(static_cast<std::size_t>(m),
         sampler.slice({.rank = rank, .ranks = ranks, .micro_batch = m, .micro_batches = count}));
}

const MicroBatch& Batches::fill(std::span<const std::int64_t> windows) {
  fill(0, windows);
  return micro_batches_.front();
}

void Batches::fill(std::size_t micro_batch, std::span<const std::int64_t> windows) {
  const std::int64_t length = windows_->seq_len();
  const std::int64_t start = static_cast<std::int64_t>(micro_batch) * sequences_ * length;
  std::vector<std::int64_t>& documents = documents_[micro_batch];
  documents.assign(1, 0);
  for (std::int64_t i = 0; i < sequences_; ++i) {
    const bool present = i < static_cast<std::int64_t>(windows.size());
    std::int32_t* const targets = targets_ + start + i * length;
    std::int32_t* const tokens = tokens_ + start + i * length;
    windows_->fill(present ? windows[static_cast<std::size_t>(i)] : 0, tokens, targets);
    if (!present) std::fill_n(targets, length, -1);
    if (separator_)
      data::append_documents({tokens, static_cast<std::size_t>(length)}, static_cast<std::int32_t>(*separator_),
                             documents);
  }
  if (separator_) micro_batches_[micro_batch].documents = documents;
}

}  // namespace fsdp::train
