// SPDX-License-Identifier: Apache-2.0
/// @file
/// What implementations of Engine and Inference share: forward passes over numbered samples and over tokens, and the
/// size of the vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/comm/stopped.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/execution/count_exchange.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/trainer/data/batches.hpp>
#include <tessera/trainer/run/engine.hpp>

namespace fsdp::train {

/// Engine::evaluate with an Executor. `group`: this rank's group of ranks that share each sequence.
template <class ExecutorT, class Comm, data::Source Source>
HeldOutBatch evaluate_batch(ExecutorT& executor, CountExchange<Comm>& exchange, Batches<Source>& batches,
                            const SequenceGroup& group, std::span<const std::int64_t> samples,
                            const comm::SignalRequests& asked = {}) {
  const typename Source::Batch* batch = nullptr;
  exchange.start(
      [&] {
        batch = &batches.fill(samples);
        return nn::counts_of_part(*batch, group.member, group.size);
      },
      asked);
  const std::int64_t targets = exchange.finish().valid_targets;
  if (const int stop = exchange.asked().stop; stop != 0) return {.stop = stop};
  return {.loss = executor.evaluate(*batch), .targets = targets};
}

/// Calls call(batch, logits) for a batch of tokens, and returns the logits [rows, V] that it wrote.
template <class Compute, class Call>
std::vector<float> logits_of(std::span<const std::int32_t> tokens, std::int64_t sequences, std::int64_t rows,
                             std::int64_t vocabulary, Call call) {
  std::vector<Compute> memory(static_cast<std::size_t>(rows * vocabulary));
  call(TokenBatch{.tokens = {tokens.data(), {std::ssize(tokens)}}, .targets = {}, .sequences = sequences},
       Tensor<Compute>(memory.data(), {rows, vocabulary}));
  return {memory.begin(), memory.end()};
}

/// Returns the size of the vocabulary of a model of text.
template <class Model>
std::int64_t vocabulary_of(const Model& model) {
  if constexpr (requires { model.config().vocab_size; }) {
    return model.config().vocab_size;
  } else {
    static_assert(
        nn::GeneratingHead<typename Model::Head, typename Model::Local>,
        "fsdp: nothing says how many tokens this model knows, so that text cannot be checked against it; give "
        "its Config a std::int64_t vocab_size, or its head logits");
    return model.head().logits_columns();
  }
}

}  // namespace fsdp::train
