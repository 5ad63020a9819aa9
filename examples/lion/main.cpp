// SPDX-License-Identifier: Apache-2.0
// A whole trainer with an optimizer of one's own: its constants are flags, its state is in checkpoints and plans.
#include <comm/threads.hpp>
#include <fsdp/fsdp.hpp>

#include "lion.hpp"

using Stack = fsdp::Stack<fsdp::FullyShard<>, fsdp::comm::Threads<>, fsdp::Bf16Mixed, fsdp::tiling::RunTime>;

int main(int argc, char** argv) { return fsdp::train_main<fsdp::Llama<Stack>, lion::Lion>(argc, argv); }
