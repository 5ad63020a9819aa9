// SPDX-License-Identifier: Apache-2.0
/// @file
/// A Llama of three blocks with sizes that are not divisible by the usual numbers, runs of it, and comparisons of runs.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

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

/// All points of a grid; only the last one under a sanitizer, where runs are many times slower.
template <class T>
std::vector<T> sampled(std::initializer_list<T> all) {
  return sanitized ? std::vector<T>{*std::prev(all.end())} : std::vector<T>(all);
}

/// Ten steps on 12 windows of 7 tokens, with the same windows in every step.
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

inline RunOptions with_steps(int steps, RunOptions options) {
  options.steps = steps;
  return options;
}

/// Five steps, the last of which saves a checkpoint.
inline RunOptions saving(int ranks, const std::filesystem::path& to) {
  RunOptions options = with_steps(5, uneven_options(ranks));
  options.save_to = to;
  return options;
}

/// The steps after a checkpoint. Their seed is different, and must not be used.
inline RunOptions resuming(int ranks, int steps, const std::filesystem::path& from) {
  RunOptions options = with_steps(steps, uneven_options(ranks));
  options.resume = from;
  options.seed = 99;
  return options;
}

inline void expect_same_tensors(const Values& found, const Values& expected) {
  EXPECT_EQ(tensors_that_differ(found, expected), std::vector<std::string>{});
}

/// Expects bit-identical losses, gradients of the first step, and weights and optimizer states after the last step.
/// Norms are sums over the pieces of a layout, and may differ.
inline void expect_same_bits(const RunResults& found, const RunResults& expected, const std::string& what = "",
                             const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const ::testing::ScopedTrace trace(file, line, what);
  EXPECT_EQ(found.losses, expected.losses);
  expect_same_tensors(found.gradients, expected.gradients);
  expect_same_tensors(found.weights, expected.weights);
  expect_same_tensors(found.states, expected.states);
}

/// Expects that a run resumed from a checkpoint of `whole` after five steps has bit-identical losses and weights.
inline void expect_resumed(const RunResults& resumed, const RunResults& whole, const std::string& what = "",
                           const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const ::testing::ScopedTrace trace(file, line, what);
  EXPECT_EQ(resumed.losses, std::vector<double>(whole.losses.begin() + 5, whole.losses.end()));
  expect_same_tensors(resumed.weights, whole.weights);
}

/// Tolerated relative differences.
struct Tolerance {
  double losses = 0;
  double weights = 1e-4;
};

inline void expect_follows(const RunResults& found, const RunResults& expected, const Tolerance& within,
                           const std::string& what = "", const char* file = __builtin_FILE(),
                           int line = __builtin_LINE()) {
  const ::testing::ScopedTrace trace(file, line, what);
  EXPECT_LE(largest_relative(found.losses, expected.losses), within.losses);
  EXPECT_LE(largest_relative(found.weights, expected.weights), within.weights);
}

/// Expects that the bytes of every rank equal its plan, on the device and in host memory.
inline void expect_planned_bytes(const RunResults& results, const char* file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
  const ::testing::ScopedTrace trace(file, line, "bytes");
  for (const Memory& memory : results.memory) {
    EXPECT_EQ(memory.used, memory.planned);
    EXPECT_EQ(memory.used_offload, memory.planned_offload);
  }
}

inline void expect_same_bytes(const RunResults& found, const RunResults& expected, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  const ::testing::ScopedTrace trace(file, line, "bytes");
  ASSERT_EQ(found.memory.size(), expected.memory.size());
  for (std::size_t i = 0; i < found.memory.size(); ++i) EXPECT_EQ(found.memory[i].used, expected.memory[i].used);
}

/// Expects the same collectives in the same order, with `wider` times the bytes for those of kind `op`.
inline void expect_same_collectives(const RunResults& found, const RunResults& expected,
                                    std::optional<comm::Op> op = {}, std::int64_t wider = 1) {
  ASSERT_EQ(found.records.size(), expected.records.size());
  for (std::size_t i = 0; i < found.records.size(); ++i) {
    const comm::Record &own = found.records[i], &other = expected.records[i];
    EXPECT_EQ(own.op, other.op);
    EXPECT_EQ(own.bytes * (other.op == op ? wider : 1), other.bytes);
  }
}

/// A rank's bytes of one kind of memory.
inline std::int64_t used_bytes(const RunResults& results, device::MemoryKind kind, std::size_t rank = 0) {
  return results.memory.at(rank).used[static_cast<std::size_t>(kind)];
}

}  // namespace fsdp::test
