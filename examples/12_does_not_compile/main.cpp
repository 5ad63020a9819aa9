// SPDX-License-Identifier: Apache-2.0
// 12: a stack that cannot work does not compile, and the compiler's first error states the reason.
//
// `g++ -std=c++20 -fsyntax-only -I PREFIX/include/tessera main.cpp` prints the error that is quoted after "expect 1"
// below; with -DCASE=2 it prints the next one, and with -DCASE=0 it compiles.
//
// Try next: fix the reported error, or combine other policies that cannot work together in a Stack.
//
// expect 1: fsdp: a precision policy lacks the type Accumulate (gradients being summed)
// expect 2: fsdp: this optimizer works on whole matrices, and the strategy cuts them over ranks
#ifndef CASE
#define CASE 1
#endif

#include <tessera/comm/threads.hpp>
#include <tessera/trainer/train_main.hpp>

/// A precision policy that lacks Accumulate, the type in which gradients are summed.
struct Forgetful {
  using Compute = fsdp::bf16;
  using Main = float;
  using Reduce = float;
};

#if CASE == 1
using Stack = fsdp::Stack<fsdp::FullyShard<>, fsdp::comm::Threads<>, Forgetful, fsdp::tiling::Untiled>;
#elif CASE == 2  // an optimizer that needs whole matrices, with a strategy that shards them
using Stack = fsdp::Stack<fsdp::FullyShard<>, fsdp::comm::Threads<>, fsdp::Bf16Mixed, fsdp::tiling::Untiled>;
#else
using Stack = fsdp::Stack<fsdp::FullyShard<>, fsdp::comm::Threads<>, fsdp::Bf16Mixed, fsdp::tiling::Untiled>;
#endif

#if CASE == 2
int main(int argc, char** argv) { return fsdp::train_main<fsdp::Llama<Stack>, fsdp::optim::Muon>(argc, argv); }
#else
int main(int argc, char** argv) { return fsdp::train_main<fsdp::Llama<Stack>>(argc, argv); }
#endif
