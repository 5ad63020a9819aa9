// SPDX-License-Identifier: Apache-2.0
// 14: an existing code base. A U-Net on Eigen, with its own forward and backward, is sharded over four ranks.
//
// unet.hpp does not depend on Tessera; units.hpp declares its tensors and the order of its computations. Skip
// connections retain activations, which the network continues to own. Units are declared in a different order than they
// are used.
//
// Prints the memory of a rank of 1, 2 and 4, which is planned without allocating anything; then the falling loss.
//
// Try next: change ranks or micro_batches, which must divide 12; change FullyShard<> to fsdp::Zero1 or
// fsdp::Replicated; add `.budget = 10000`, in bytes, to the settings.
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
    const int count = pictures / (ranks * micro_batches);  // number of images in a micro-batch
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
