// SPDX-License-Identifier: Apache-2.0
#include <fsdp/module/micro_batch.hpp>

#include <fsdp/core/error.hpp>

namespace fsdp {

void require_micro_batch(const MicroBatch& batch, std::int64_t sequence_length, std::int64_t vocabulary) {
  for (std::int64_t t = 0; t < batch.tokens.numel(); ++t)
    require<InputError>(batch.tokens[t] >= 0 && batch.tokens[t] < vocabulary, "token ", t, " is ", batch.tokens[t],
                        ", outside the vocabulary of ", vocabulary);
  for (std::int64_t t = 0; t < batch.targets.numel(); ++t)
    require<InputError>(batch.targets[t] < vocabulary, "target ", t, " is ", batch.targets[t],
                        ", outside the vocabulary of ", vocabulary, "; give a negative one where none counts");
  device::require_documents(batch.documents, batch.tokens.numel(), sequence_length);
}

}  // namespace fsdp
