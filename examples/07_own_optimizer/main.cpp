// SPDX-License-Identifier: Apache-2.0
// 07: an optimizer of your own. Its constants are flags, its state is in checkpoints and plans.
//
// Without arguments it plans a step: "optimizer" is one float a weight, where AdamW has two. With --data FILE... it
// trains;
// --help shows --beta1 and --beta2.
// Change next: a second state in lion.hpp (states, and piece.states[1] in update), and see the plan grow.
#include <comm/threads.hpp>
#include <fsdp/fsdp.hpp>

#include "lion.hpp"

using Stack = fsdp::Stack<fsdp::FullyShard<>, fsdp::comm::Threads<>, fsdp::Bf16Mixed, fsdp::tiling::RunTime>;

int main(int argc, char** argv) {
  const char* const plan[] = {argv[0], "--dry-run", "--model", "tiny"};
  using Model = fsdp::Llama<Stack>;
  return argc > 1 ? fsdp::train_main<Model, lion::Lion>(argc, argv) : fsdp::train_main<Model, lion::Lion>(4, plan);
}
