// SPDX-License-Identifier: Apache-2.0
// 13: a larger model of your own, with its own modules and operations: GPT-2 over bytes.
//
// Without arguments it plans a step on 4 ranks. With --data FILE... it trains; the values of its config are flags
// (--n-layer 4, see --help).
//
// Try next: change the stack; or change an operation in operations.cpp, which tests/examples compares with float64.
#include <tessera/comm/threads.hpp>
#include <tessera/trainer/train_main.hpp>

#include "model.hpp"

using Model = gpt2::Gpt2<fsdp::Stack<fsdp::FullyShard<>,                  // sharding: FSDP2
                                     fsdp::comm::Threads<>,               // ranks are threads of this process
                                     fsdp::Bf16Mixed,                     // bf16 compute, fp32 main weights
                                     fsdp::tiling::TokensPerTile<128>>>;  // MLP and loss, 128 tokens at a time
static_assert(fsdp::check_model<Model>());

int main(int argc, char** argv) {
  const char* const plan[] = {argv[0], "--dry-run", "--ranks", "4"};
  return argc > 1 ? fsdp::train_main<Model>(argc, argv) : fsdp::train_main<Model>(4, plan);
}
