// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/nn/token_batch.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/device/operations.hpp>

namespace fsdp {

TokenBatch TokenBatch::unread(std::int64_t sequences, std::int64_t sequence_length) {
  const auto tokens = device::unbacked<const std::int32_t>({sequences * sequence_length});
  return {.tokens = tokens, .targets = tokens, .sequences = sequences};
}

void TokenBatch::validate(std::int64_t sequence_length, std::int64_t vocabulary) const {
  for (std::int64_t t = 0; t < tokens.numel(); ++t)
    require<InputError>(tokens[t] >= 0 && tokens[t] < vocabulary, "token ", t, " is ", tokens[t],
                        ", outside the vocabulary of ", vocabulary);
  for (std::int64_t t = 0; t < targets.numel(); ++t)
    require<InputError>(targets[t] < vocabulary, "target ", t, " is ", targets[t], ", outside the vocabulary of ",
                        vocabulary, "; give a negative one where none counts");
  device::require_documents(documents, tokens.numel(), sequence_length);
}

BatchCounts TokenBatch::counts() const {
  const device::AttentionShape shape{.sequences = sequences,
                                     .sequence_length = tokens.numel() / std::max<std::int64_t>(sequences, 1),
                                     .documents = documents};
  return {.valid_targets = std::count_if(targets.data(), targets.data() + targets.numel(),
                                         [](std::int32_t target) { return target >= 0; }),
          .squares = shape.squares()};
}

nn::RowRuns TokenBatch::pattern() const {
  require(documents.empty(), "training step: packed documents change from step to step; it is not alike");
  nn::RowRuns rows = nn::valid_rows(targets, false);
  rows.push_back({sequences, targets.numel()});
  return rows;
}

}  // namespace fsdp
