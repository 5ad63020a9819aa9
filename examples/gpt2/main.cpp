// SPDX-License-Identifier: Apache-2.0
// Trains a GPT-2 over bytes: gpt2 --ranks 2 --data FILE... [--n-layer 4 ...]. The values of its config are flags.
#include <comm/threads.hpp>
#include <fsdp/fsdp.hpp>

#include "model.hpp"

using Model = gpt2::Gpt2<fsdp::Stack<fsdp::FullyShard<>,                  // sharding: FSDP2
                                     fsdp::comm::Threads<>,               // ranks are threads of this process
                                     fsdp::Bf16Mixed,                     // bf16 compute, fp32 main weights
                                     fsdp::tiling::TokensPerTile<128>>>;  // MLP and loss, 128 tokens at a time
static_assert(fsdp::check_model<Model>());

int main(int argc, char** argv) { return fsdp::train_main<Model>(argc, argv); }
