// SPDX-License-Identifier: Apache-2.0
// A program with stacks that `tessera` does not contain. The first argument selects one; the others are training flags.
#include <string_view>

#include "foreign.hpp"

namespace {

using namespace fsdp;
using comm::Threads;

using Foreign = Llama<Stack<mine::Sharding, mine::Ranks, mine::Precision, mine::Tiles>>;
using Imitated = Llama<Stack<FullyShard<>, Threads<>, Bf16Mixed, tiling::TokensPerTile<9>>>;
/// Three policies that each take another as their argument.
using Wrapped =
    Llama<Stack<Offload<WithLayout<FullyShard<>, buffer::Flat>>, Threads<>, Bf16Wire<Bf16Mixed>, tiling::Untiled>>;
using Hybrid = Llama<Stack<HybridShard<Zero3>, Threads<>, Bf16Mixed, tiling::RunTimeTiling>>;

}  // namespace

int main(int argc, char** argv) {
  const std::string_view which = argc > 1 ? argv[1] : "";
  --argc, ++argv;
  if (which == "foreign") return train_main<Foreign>(argc, argv, {.ahead = 1}, mine::Tiles(9));
  if (which == "imitated") return train_main<Imitated>(argc, argv);
  if (which == "wrapped") return train_main<Wrapped>(argc, argv);
  if (which == "hybrid") return train_main<Hybrid>(argc, argv, {.group = 2}, tiling::RunTimeTiling::tokens(9));
  return 1;
}
