// SPDX-License-Identifier: Apache-2.0
// expect 1: fsdp: train_main was not given a policy's value, and its type has no default constructor
// expect 2: fsdp: a communicator lacks static int run(const comm::Options&, F f), which calls f(communicator) on each
// expect 3: fsdp: train_main trains on text, and this model's Batch is no TokenBatch
#include <tessera/comm/self.hpp>
#include <tessera/trainer/train_main.hpp>

namespace fsdp {

struct Tiles {
  explicit Tiles(std::int64_t tokens) : tokens(tokens) {}
  tiling::TilePlan plan(const tiling::Problem& problem) const { return tiling::cut(problem, tokens); }
  std::int64_t tokens;
};

/// A communicator that cannot be started.
struct Alone : comm::Self<> {
  Alone split(int color);
  static void run() = delete;
};

template <class Comm, class Tiling>
using ModelOf = Llama<Stack<FullyShard<>, Comm, Fp32, Tiling>>;

#if CASE == 0
int status(int argc, char** argv) { return train_main<ModelOf<comm::Self<>, Tiles>>(argc, argv, {}, Tiles(4)); }
#elif CASE == 1
int status(int argc, char** argv) { return train_main<ModelOf<comm::Self<>, Tiles>>(argc, argv); }
#elif CASE == 2
int status(int argc, char** argv) { return train_main<ModelOf<Alone, tiling::Untiled>>(argc, argv); }
#elif CASE == 3
struct Numbers : ModelOf<comm::Self<>, tiling::Untiled> {
  struct Batch : TokenBatch {};
};
int status(int argc, char** argv) { return train_main<Numbers>(argc, argv); }
#endif

}  // namespace fsdp
