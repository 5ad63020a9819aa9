// SPDX-License-Identifier: Apache-2.0
// 10: resume on a different number of ranks, with a different strategy. Two ranks train with FSDP2 and save a
// checkpoint; three ranks resume it with ZeRO-3.
//
// Prints both runs: the losses of steps 25 to 40 differ at most in their last digits, since three ranks add numbers in
// a different order than two. Checkpoints contain unsharded tensors; each rank reads the ranges that it needs.
//
// Try next: change the number of ranks, or fsdp::Zero3 to fsdp::Zero1. With the same ranks and strategy, the runs are
// bit-identical.
#include <cstdio>
#include <string>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/trainer/run/trainer.hpp>
#include <tessera/trainer/train_main.hpp>

#include "../06_own_model/model.hpp"
#include "../06_own_model/source.hpp"

using Comm = fsdp::comm::Threads<>;
using Model = forecaster::Forecaster<fsdp::Stack<fsdp::RunTimeSharded, Comm, fsdp::Fp32, fsdp::tiling::Untiled>>;

int train(int ranks, const fsdp::RunTimeSharded& strategy, const std::string& folder, const std::string& resume) {
  fsdp::train::TrainOptions options{.steps = 40, .seq_len = 32, .batch_size = 12, .lr = 1e-2, .log_every = 5};
  options.checkpoint_dir = folder;
  options.checkpoint_every = 20;
  options.resume = resume;
  options.launch.ranks = ranks;
  return fsdp::train::launch<Comm>(options.launch, [&](Comm& communicator) {
    const forecaster::Seasons source{.length = options.seq_len};
    const Model model(forecaster::Config{.series = source.series});
    using Trainer = fsdp::train::Trainer<Model, forecaster::Seasons>;
    return Trainer(communicator, options, model, source, strategy, {}).run();
  });
}

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "resume-elsewhere";
  std::puts("== 40 steps on 2 ranks, fsdp2");
  if (const int status = train(2, {fsdp::FullyShard<>{}}, folder + "/two", "auto"); status != 0) return status;
  std::puts("== steps 21 to 40 again, on 3 ranks, zero3");
  return train(3, {fsdp::Zero3{}}, folder + "/three", folder + "/two/step-00000020");
}
