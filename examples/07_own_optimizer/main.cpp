// SPDX-License-Identifier: Apache-2.0
// 07: an optimizer of your own. Its constants become flags; its state is part of plans and checkpoints.
//
// Without arguments it plans a step: "optimizer" is one float per weight, where AdamW needs two. With --data FILE... it
// trains. --help lists --beta1 and --beta2.
//
// Try next: add a second state in lion.hpp (states(), and piece.states[1] in update), and see the plan grow.
#include <tessera/comm/threads.hpp>
#include <tessera/trainer/train_main.hpp>

#include "lion.hpp"

using Stack = fsdp::Stack<fsdp::FullyShard<>, fsdp::comm::Threads<>, fsdp::Bf16Mixed, fsdp::tiling::RunTimeTiling>;

int main(int argc, char** argv) {
  const char* const plan[] = {argv[0], "--dry-run", "--model", "tiny"};
  using Model = fsdp::Llama<Stack>;
  return argc > 1 ? fsdp::train_main<Model, lion::Lion>(argc, argv) : fsdp::train_main<Model, lion::Lion>(4, plan);
}
