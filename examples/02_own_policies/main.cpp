// SPDX-License-Identifier: Apache-2.0
// 02: a stack of your own policies. Their types are arguments of the stack; their values are passed to train_main.
//
// Without arguments it plans a step on 4 ranks; the first line shows your strategy's text(). With --data FILE... it
// trains. --help does not list --sharding, --precision and --tiling, since the types determine them.
//
// Try next: change Reduce to float in policies.hpp and compare "scratch" in the plan; or delete Accumulate and read the
// compiler's error, a single sentence.
#include <tessera/comm/threads.hpp>

#include "policies.hpp"

using Stack = fsdp::Stack<mine::Sharding, fsdp::comm::Threads<>, mine::Precision, mine::Tiles>;

int main(int argc, char** argv) {
  const mine::Sharding sharding{.ahead = 2};
  const mine::Tiles tiles(3);
  if (argc > 1) return fsdp::train_main<fsdp::Llama<Stack>>(argc, argv, sharding, tiles);
  const char* const plan[] = {argv[0], "--dry-run", "--model", "tiny", "--ranks", "4"};
  return fsdp::train_main<fsdp::Llama<Stack>>(6, plan, sharding, tiles);
}
