// SPDX-License-Identifier: Apache-2.0
// 14: a code base of one's own. A U-Net on Eigen, with its forward and backward, is sharded over four ranks.
//
// unet.hpp knows nothing of Tessera; units.hpp declares its tensors and the order of its computations. Skip connections
// hold activations, which stay the network's own; units are declared in another order than they are used in.
//
// Prints what a rank of 1, 2 and 4 holds, which is planned without allocating anything; then the falling loss.
//
// Try next: change ranks or micro_batches, which must divide 12; change FullyShard<> to fsdp::Zero1 or
// fsdp::Replicated; give the settings `.budget = 10000`, bytes.
#include <cstdio>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sharded.hpp>

#include "units.hpp"

using Comm = fsdp::comm::Threads<>;
using Sharded = fsdp::Sharded<fsdp::Stack<fsdp::FullyShard<>, Comm, fsdp::Fp32>>;

constexpr int ranks = 4, micro_batches = 1, pictures = 12;

int main() try {
  const std::vector<fsdp::Unit> units = unet::sharded_units();
  const Sharded::Settings settings{.orders = {unet::order()},
                                   .micro_batches = micro_batches,
                                   .optimizer = {.weight_decay = 0.01},
                                   .rules = {.clip = 1}};
  for (const int of : {1, 2, 4})
    std::printf("rank 0 of %d holds %lld bytes\n", of,
                static_cast<long long>(Sharded::plan(of, 0, units, {}, settings).sum()));

  return Comm::run(ranks, {}, [&](Comm& communicator) {
    Sharded sharded(communicator, units, {}, settings);
    sharded.initialize(1);
    const int count = pictures / (ranks * micro_batches);  // in a micro-batch
    const double share = 1.0 / (pictures * unet::size * unet::size);
    for (int step = 0; step <= 90; ++step) {
      double loss = 0;
      auto pass = sharded.train();
      for (int m = 0; m < micro_batches; ++m) {
        const int first = (communicator.rank() * micro_batches + m) * count;
        loss += unet::train(pass, unet::Pictures<float>(count, step, first), share);
      }
      pass.finish();
      const auto decision = sharded.step(loss * share, {.lr = 0.01});
      if (communicator.rank() == 0 && step % 30 == 0) std::printf("step %d  loss %.4f\n", step, decision.loss);
    }
  });
} catch (const fsdp::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
