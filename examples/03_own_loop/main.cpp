// SPDX-License-Identifier: Apache-2.0
// 03: a training loop of your own. Two ranks, each with a shard of the weights, learn to count.
//
// Prints the falling loss every 30 steps.
//
// Try next: change .ranks; change Untiled to fsdp::tiling::TokensPerTile<8>; add
// .micro_batches = 2 after .sequence_length = length, and pass two batches to each step.
#include <cstdio>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>

using Comm = fsdp::comm::Threads<>;
using Model = fsdp::Llama<fsdp::Stack<fsdp::FullyShard<>, Comm, fsdp::Bf16Mixed, fsdp::tiling::Untiled>>;

int main() {
  return fsdp::train::launch<Comm>({.ranks = 2}, [](Comm& communicator) {
    constexpr int length = 32;
    fsdp::train::Training<Model> training(communicator, Model(fsdp::llama_preset("tiny")), {.sequence_length = length});
    training.initialize(1);
    std::vector<std::int32_t> numbers(length + 1);
    const fsdp::TokenBatch batch{{numbers.data(), {length}}, {numbers.data() + 1, {length}}, 1};
    for (int step = 0; step <= 90; ++step) {
      for (int i = 0; i <= length; ++i) numbers[i] = (7 * step + communicator.rank() + i) % 100;
      const double loss = training.step(batch, {.lr = 1e-3});
      if (communicator.rank() == 0 && step % 30 == 0) std::printf("step %d  loss %.3f\n", step, loss);
    }
  });
}
