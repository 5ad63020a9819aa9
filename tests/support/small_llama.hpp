// SPDX-License-Identifier: Apache-2.0
/// @file
/// A Llama of three blocks whose sizes divide by nothing, and runs of it.
#pragma once

#include <initializer_list>
#include <iterator>
#include <vector>

#include <support/sanitizer.hpp>
#include <support/stack_runner.hpp>

namespace fsdp::test {

inline LlamaConfig uneven_llama(std::int64_t layers = 3) {
  return {.vocab_size = 37,
          .hidden_size = 19,
          .intermediate_size = 29,
          .layers = layers,
          .heads = 3,
          .kv_heads = 1,
          .head_dim = 6};
}

/// Points of a grid; under a sanitizer, which slows runs many times, the last of them.
template <class T>
std::vector<T> sampled(std::initializer_list<T> all) {
  return sanitized ? std::vector<T>{*std::prev(all.end())} : std::vector<T>(all);
}

/// Ten steps on 12 windows of 7 tokens, the same ones every step.
inline RunOptions uneven_options(int ranks, int micro_batches = 1) {
  const LlamaConfig config = uneven_llama();
  return {.config = config,
          .sequence_length = 7,
          .most_sequences = most_dealt(12, ranks, micro_batches),
          .ranks = ranks,
          .micro_batches = micro_batches,
          .lr = 3e-3,
          .batch = deal(some_windows(12, 7, config.vocab_size))};
}

}  // namespace fsdp::test
