// SPDX-License-Identifier: Apache-2.0
// The program on the book's front page: it compiles.
// clang-format off
#include <comm/threads.hpp>
#include <fsdp/fsdp.hpp>

using Stack = fsdp::Stack<
    fsdp::FullyShard<>,                  // sharding: FSDP2
    fsdp::comm::Threads<>,               // ranks are threads
    fsdp::Bf16Mixed,                     // precision
    fsdp::tiling::TokensPerTile<4096>>;  // tiling: MLP and loss

int main(int argc, char** argv) {
  return fsdp::train_main<fsdp::Llama<Stack>>(argc, argv);
}
