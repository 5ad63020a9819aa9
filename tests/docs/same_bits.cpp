// SPDX-License-Identifier: Apache-2.0
// The code on the page about bit-identical results, to check that it compiles and links only tessera::sharding.
// clang-format off
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sharded.hpp>

using Stack = fsdp::Stack<fsdp::Reproducible<fsdp::FullyShard<>>, fsdp::comm::Threads<>, fsdp::Fp32>;

double compute(fsdp::Pass<Stack>&, int) { return 0; }  // the loss of one piece

void train(fsdp::comm::Threads<>& ranks) {
  fsdp::Sharded<Stack> module(ranks, {{"encoder", {{"w", {64, 128}}}}, {"decoder", {{"v", {128, 64}}}}}, {{}, 8});  // 8 pieces
  module.initialize(1);
  auto pass = module.train();
  std::vector<double> losses;  // of this rank's pieces
  for (int round = 0; round < module.module().settings().passes.micro_batches; ++round)
    if (const auto piece = module.module().step_piece(round))
      losses.push_back(compute(pass, *piece));  // forward and backward of all units
    else
      pass.skip();  // nothing is left for this rank
  pass.finish();
  module.step(losses, {.lr = 1e-3});
}

int main() {
  return fsdp::comm::Threads<>::run(3, {}, [](fsdp::comm::Threads<>& ranks) { return train(ranks), 0; });
}
