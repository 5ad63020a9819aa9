// SPDX-License-Identifier: Apache-2.0
// 01: a complete sharded trainer. Choose policies, and you get a program.
//
// Without arguments it plans a step on 4 ranks and prints the memory of each rank. With --data FILE... it trains.
// --help lists all flags.
//
// Try next: change FullyShard to fsdp::Zero3, or TokensPerTile<256> to fsdp::tiling::Untiled, and see the plan change.
#include <tessera/comm/threads.hpp>
#include <tessera/trainer/train_main.hpp>

using Stack = fsdp::Stack<fsdp::FullyShard<fsdp::ReshardAfterForward::yes>,  // sharding: FSDP2
                          fsdp::comm::Threads<>,                             // ranks are threads of this process
                          fsdp::Bf16Mixed,                                   // bf16 compute, fp32 main weights
                          fsdp::tiling::TokensPerTile<256>>;                 // MLP and loss, 256 tokens at a time

int main(int argc, char** argv) {
  const char* const plan[] = {argv[0], "--dry-run", "--model", "tiny", "--ranks", "4"};
  return argc > 1 ? fsdp::train_main<fsdp::Llama<Stack>>(argc, argv) : fsdp::train_main<fsdp::Llama<Stack>>(6, plan);
}
