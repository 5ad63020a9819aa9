// SPDX-License-Identifier: Apache-2.0
// A batch of tokens, and lists of structs (tessera/fsdp/core/lists.hpp).
#include <tessera/fsdp/nn/token_batch.hpp>

#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/nn/stages.hpp>

template class std::vector<fsdp::TokenBatch>;
template class std::vector<fsdp::nn::HeadRange>;
template class std::vector<fsdp::nn::RowRange>;

namespace fsdp {

TokenBatch TokenBatch::unread(std::int64_t sequences, std::int64_t sequence_length) {
  const auto tokens = device::unbacked<const std::int32_t>({sequences * sequence_length});
  return {.tokens = tokens, .targets = tokens, .sequences = sequences};
}

void TokenBatch::validate(std::int64_t sequence_length, std::int64_t vocabulary) const {
  require<InputError>(targets.numel() == 0 || targets.numel() == tokens.numel(), "batch: ", tokens.numel(),
                      " tokens have ", targets.numel(), " targets; give one for each, or none for logits");
  for (std::int64_t t = 0; t < tokens.numel(); ++t)
    require<InputError>(tokens[t] >= 0 && tokens[t] < vocabulary, "token ", t, " is ", tokens[t],
                        ", outside the vocabulary of ", vocabulary);
  for (std::int64_t t = 0; t < targets.numel(); ++t)
    require<InputError>(targets[t] < vocabulary, "target ", t, " is ", targets[t], ", outside the vocabulary of ",
                        vocabulary, "; give a negative one where none counts");
  device::require_documents(documents, tokens.numel(), sequence_length);
}

TokenBatch TokenBatch::part(int part, int parts) const {
  require<LogicError>(all_rows == 0, "token batch: part ", part, " of ", parts,
                      " is to be cut from a part; cut the whole batch");
  const nn::RowRange rows = nn::rows_of_part(tokens.numel(), part, parts);
  TokenBatch own = *this;
  own.first_row = rows.begin;
  own.all_rows = tokens.numel();
  own.noise.first_row += rows.begin;
  own.tokens = tokens.slice(rows.begin, rows.end);
  if (targets.numel() > 0) own.targets = targets.slice(rows.begin, rows.end);
  return own;
}

BatchCounts TokenBatch::counts() const {
  const std::int64_t rows = tokens.numel(), all = all_rows > 0 ? all_rows : rows;
  std::int64_t squares = 0;  // each row adds the length of its document
  if (documents.empty()) squares = checked_multiply(rows, all / std::max<std::int64_t>(sequences, 1));
  for (std::size_t i = 1; i < documents.size(); ++i) {
    const std::int64_t begin = documents[i - 1], end = documents[i];
    const std::int64_t own = std::min(end, first_row + rows) - std::max(begin, first_row);
    squares += checked_multiply(std::max<std::int64_t>(own, 0), end - begin);
  }
  return {.valid_targets = std::count_if(targets.data(), targets.data() + targets.numel(),
                                         [](std::int32_t target) { return target >= 0; }),
          .squares = squares};
}

nn::RowRuns TokenBatch::pattern() const {
  require(documents.empty(), "training step: packed documents change from step to step; it is not alike");
  nn::RowRuns rows = nn::valid_rows(targets, false);
  rows.push_back({sequences, targets.numel()});
  return rows;
}

}  // namespace fsdp
