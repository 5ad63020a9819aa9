// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/batches.hpp>

#include <algorithm>

namespace fsdp::train {

Batches::Batches(const data::Windows& windows, std::int64_t sequences, int micro_batches)
    : windows_(&windows), sequences_(sequences) {
  const std::int64_t tokens = sequences * windows.seq_len();
  tokens_.resize(static_cast<std::size_t>(tokens * micro_batches));
  targets_.resize(tokens_.size());
  for (int m = 0; m < micro_batches; ++m)
    micro_batches_.push_back({.tokens = {tokens_.data() + m * tokens, {tokens}},
                              .targets = {targets_.data() + m * tokens, {tokens}},
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

std::int64_t Batches::valid_targets() const {
  return std::count_if(targets_.begin(), targets_.end(), [](std::int32_t target) { return target >= 0; });
}

void Batches::fill(std::size_t micro_batch, std::span<const std::int64_t> windows) {
  const std::int64_t length = windows_->seq_len();
  const std::int64_t start = static_cast<std::int64_t>(micro_batch) * sequences_ * length;
  for (std::int64_t i = 0; i < sequences_; ++i) {
    const bool present = i < static_cast<std::int64_t>(windows.size());
    std::int32_t* const targets = targets_.data() + start + i * length;
    windows_->fill(present ? windows[static_cast<std::size_t>(i)] : 0, tokens_.data() + start + i * length, targets);
    if (!present) std::fill_n(targets, length, -1);
  }
}

}  // namespace fsdp::train
