// SPDX-License-Identifier: Apache-2.0
// 05: a communicator of your own, which wraps another one and counts the bytes that each rank receives in a step.
//
// Prints FSDP2's traffic on 1 to 4 ranks: 5 gathers of bf16 weights in forward, 2 in backward, and 5 reductions of
// float gradients. Of each, a rank receives (N - 1) / N. Two more gathers exchange counts of targets and gradient
// norms. docs/communication.md explains the numbers.
//
// Try next: change FullyShard to fsdp::Zero1 or fsdp::Replicated, or Bf16Mixed to fsdp::Bf16Wire<fsdp::Bf16Mixed>.
#include <cstdio>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/fsdp/training/training.hpp>

#include "counting.hpp"

using Comm = mine::Counting<fsdp::comm::Threads<>>;
using Model = fsdp::Llama<fsdp::Stack<fsdp::FullyShard<>, Comm, fsdp::Bf16Mixed, fsdp::tiling::Untiled>>;

int main() {
  for (const int ranks : {1, 2, 3, 4}) {
    const int status = fsdp::train::launch<Comm>({.ranks = ranks}, [](Comm& communicator) {
      constexpr int length = 32;
      const Model model(fsdp::llama_preset("tiny"));
      fsdp::train::Training<Model> training(communicator, model, {.sequence_length = length, .threads = 1});
      training.initialize(1);
      const std::vector<std::int32_t> numbers(length + 1, 7);
      const fsdp::TokenBatch batch{{numbers.data(), {length}}, {numbers.data() + 1, {length}}, 1};
      const mine::Traffic before = communicator.traffic();
      training.step(batch, {.lr = 1e-3});
      const mine::Traffic after = communicator.traffic();
      if (communicator.rank() != 0) return;
      const double parameters = static_cast<double>(parameter_count(model));
      std::printf("%d %s: %lld gathers bring %.3f bytes a weight, %lld reductions %.3f\n", communicator.size(),
                  communicator.size() == 1 ? "rank" : "ranks", static_cast<long long>(after.gathers - before.gathers),
                  static_cast<double>(after.gathered_bytes - before.gathered_bytes) / parameters,
                  static_cast<long long>(after.reductions - before.reductions),
                  static_cast<double>(after.reduced_bytes - before.reduced_bytes) / parameters);
    });
    if (status != 0) return status;
  }
}
