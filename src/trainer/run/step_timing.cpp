// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/step_timing.hpp>

#include <algorithm>
#include <chrono>

#include <tessera/comm/agreement.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>

namespace fsdp::train {

RandomBatches::RandomBatches(std::int64_t sequences, std::int64_t sequence_length, std::int64_t vocabulary,
                             int micro_batches, std::uint64_t key, data::Allocate allocate) {
  const std::int64_t tokens = sequences * sequence_length;
  std::uint64_t word = mixed(key + 1);
  for (int m = 0; m < micro_batches; ++m) {
    memory_.push_back(allocate((tokens + 1) * static_cast<std::int64_t>(sizeof(std::int32_t))));
    auto* const ids = reinterpret_cast<std::int32_t*>(memory_.back().get());
    for (std::int64_t i = 0; i <= tokens; ++i) {
      word = mixed(word);
      ids[i] = static_cast<std::int32_t>(word % static_cast<std::uint64_t>(vocabulary));
    }
    batches_.push_back({.tokens = {ids, {tokens}}, .targets = {ids + 1, {tokens}}, .sequences = sequences});
    batches_.back().set_noise(1, m * sequences);
  }
}

BatchCounts RandomBatches::counts(int part, int parts) const {
  BatchCounts sum;
  for (const TokenBatch& batch : batches_) sum += nn::counts_of_part(batch, part, parts);
  return sum;
}

double median_seconds(const comm::Ranks& ranks, const Timing& timing, FunctionRef<void()> step) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < timing.warm_ups; ++i) step();
  std::vector<double> seconds;
  double sum = 0;
  do {
    ranks.barrier({"a timed step"});
    const auto begin = Clock::now();
    step();
    double slowest = std::chrono::duration<double>(Clock::now() - begin).count();
    ranks.reduce(std::span(&slowest, 1), comm::Reduction::max, {"seconds of a timed step"});
    seconds.push_back(slowest);
    sum += slowest;
  } while (std::ssize(seconds) < timing.steps && sum < timing.most_seconds);
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

std::string memory_that_lacks(const comm::Ranks& ranks, FunctionRef<void()> f) {
  std::string mine;
  try {
    f();
  } catch (const MemoryError& error) {
    mine = error.what();
  }
  for (const std::string& each : comm::gather_texts(ranks, mine, "memory of a timed step"))
    if (!each.empty()) return each;
  return "";
}

}  // namespace fsdp::train
