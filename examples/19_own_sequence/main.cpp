// SPDX-License-Identifier: Apache-2.0
// 19: a block of your own whose sequences are shared by several ranks. Its stages (causal_mean.hpp) specify the
// computation on a rank's rows, and the computation on all rows of a rank's channels; the library exchanges matrices in
// between.
//
// Trains a model without attention on two ranks twice: first each rank has a separate sequence, then each has half of
// the rows of both sequences. Prints the losses, which are equal, and the exchanges of a step.
//
// Try next: remove a stage of CausalMean, and read the error; set StepSize::middle_parts; use Zero3.
#include <cstdint>
#include <cstdio>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sequence/ulysses.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>

#include "model.hpp"

using Comm = fsdp::comm::Threads<>;
using Model = mixer::Mixer<fsdp::Stack<fsdp::FullyShard<>, Comm, fsdp::Fp32, fsdp::tiling::Untiled, fsdp::Ulysses>>;
static_assert(fsdp::check_model<Model>());

constexpr std::int64_t length = 65;  // need not be divisible by the number of ranks

/// Tokens of two sequences: each repeats the sum of the two before it.
std::vector<std::int32_t> tokens_of(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens{1, 3};
  while (static_cast<std::int64_t>(tokens.size()) < count)
    tokens.push_back((tokens[tokens.size() - 1] + tokens[tokens.size() - 2]) % static_cast<std::int32_t>(vocabulary));
  return tokens;
}

/// One rank's run. Ranks that share sequences pass the same micro-batch, and each computes its rows of it.
void train(Comm& communicator, int ranks_per_sequence) {
  const Model model(mixer::Config{});
  const fsdp::train::StepSize size{.sequences = ranks_per_sequence,
                                   .sequence_length = length,
                                   .ranks_per_sequence = ranks_per_sequence,
                                   .threads = 1};
  fsdp::train::Training<Model> training(communicator, model, size);
  training.initialize(1);
  const std::vector<std::int32_t> text = tokens_of(2 * length + 1, model.config().vocabulary);
  const std::int64_t first = training.module().sequence_group().index * length;
  const std::int64_t rows = size.sequences * length;
  const fsdp::TokenBatch batch{.tokens = {text.data() + first, {rows}},
                               .targets = {text.data() + first + 1, {rows}},
                               .sequences = size.sequences};
  for (int step = 1; step <= 40; ++step) {
    const double loss = training.step(batch, {.lr = 1e-2});
    if (communicator.rank() == 0 && step % 10 == 0) std::printf("  step %d  loss %.5f\n", step, loss);
  }
  if (communicator.rank() != 0) return;
  const auto exchanges = training.traffic().sequence[fsdp::comm::Op::all_to_all];
  std::printf("  %lld exchanges a step, %lld bytes of activations\n", static_cast<long long>(exchanges.calls / 40),
              static_cast<long long>(training.plan().activation_bytes));
}

int main() {
  for (const int ranks_per_sequence : {1, 2}) {
    std::printf("%s\n", ranks_per_sequence == 1 ? "a sequence for each rank" : "two ranks share each sequence");
    Comm::run(2, {}, [&](Comm& communicator) { train(communicator, ranks_per_sequence); });
  }
}
