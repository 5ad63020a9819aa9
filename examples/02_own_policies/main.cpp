// SPDX-License-Identifier: Apache-2.0
// 02: a stack of your own policies. Types go into the stack, their numbers come along as values.
//
// Without arguments it plans a step of 4 ranks. "stack" in its first line names your strategy as its text() does. With
// --data FILE... it trains; --help has no --sharding, --precision and --tiling, since the types have settled them.
// Change next: Reduce to float in policies.hpp, and compare "scratch"; drop Accumulate, and read the one sentence that
// the compiler says.
#include <comm/threads.hpp>

#include "policies.hpp"

using Stack = fsdp::Stack<mine::Sharding, fsdp::comm::Threads<>, mine::Precision, mine::Tiles>;

int main(int argc, char** argv) {
  const mine::Sharding sharding{.ahead = 2};
  const mine::Tiles tiles(3);
  if (argc > 1) return fsdp::train_main<fsdp::Llama<Stack>>(argc, argv, sharding, tiles);
  const char* const plan[] = {argv[0], "--dry-run", "--model", "tiny", "--ranks", "4"};
  return fsdp::train_main<fsdp::Llama<Stack>>(6, plan, sharding, tiles);
}
