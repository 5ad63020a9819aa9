// SPDX-License-Identifier: Apache-2.0
// The code on the documentation's front page, to check that it compiles.
// clang-format off
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/fsdp.hpp>
#include <tessera/trainer/train_main.hpp>

using Stack = fsdp::Stack<
    fsdp::FullyShard<>,                  // sharding: FSDP2
    fsdp::comm::Threads<>,               // ranks are threads
    fsdp::Bf16Mixed,                     // precision
    fsdp::tiling::TokensPerTile<4096>>;  // tiling: MLP and loss
using Model = fsdp::Llama<Stack>;

void train(Stack::Comm& ranks, const Model& model, const fsdp::TokenBatch& batch) {
  fsdp::train::Training<Model, fsdp::optim::AdamW> training(
      ranks, model, {.sequence_length = 8192});
  training.initialize(1);
  const double loss = training.step(batch, {.lr = 3e-4});
  (void)loss;
}

int main(int argc, char** argv) { return fsdp::train_main<Model>(argc, argv); }
