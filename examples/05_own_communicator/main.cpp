// SPDX-License-Identifier: Apache-2.0
// 05: a communicator of your own, which wraps another one and counts the bytes that each rank receives in a step.
//
// Prints FSDP2's traffic in a run of one step on 1 to 4 ranks: 5 gathers of bf16 weights in forward, 2 in backward, and
// 5 reductions of float gradients. Of each of them, a rank receives (N - 1) / N. Two more gathers exchange counts of
// targets and gradient norms. docs/communication.md explains the numbers.
//
// Try next: change FullyShard to fsdp::Zero1 or fsdp::Replicated, or Bf16Mixed to fsdp::Bf16Wire<fsdp::Bf16Mixed>.
#include <cstdint>
#include <cstdio>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>

#include "counting.hpp"

using Comm = mine::Counting<fsdp::comm::Threads<>>;
using Model = fsdp::Llama<fsdp::Stack<fsdp::FullyShard<>, Comm, fsdp::Bf16Mixed, fsdp::tiling::Untiled>>;

int main() {
  const Model model(fsdp::llama_preset("tiny"));
  std::printf("%lld weights\n", static_cast<long long>(parameter_count(model)));
  for (const int ranks : {1, 2, 3, 4}) {
    const int status = fsdp::train::launch<Comm>({.ranks = ranks}, [&model](Comm& communicator) {
      constexpr int length = 32;
      fsdp::train::Training<Model> training(communicator, model, {.sequence_length = length, .threads = 1});
      training.initialize(1);
      const std::vector<std::int32_t> numbers(length + 1, 7);
      const fsdp::TokenBatch batch{{numbers.data(), {length}}, {numbers.data() + 1, {length}}, 1};
      training.step(batch, {.lr = 1e-3});
    });  // the run has ended, and the communicator prints its counts
    if (status != 0) return status;
  }
}
