// SPDX-License-Identifier: Apache-2.0
// Trains a model without tokens: forecasts several series, two ranks with half of the weights each.
#include <comm/threads.hpp>
#include <fsdp/fsdp.hpp>
#include <fsdp/train/trainer.hpp>

#include "model.hpp"
#include "source.hpp"

using Comm = fsdp::comm::Threads<>;
using Model = forecaster::Forecaster<fsdp::Stack<fsdp::FullyShard<>, Comm, fsdp::Fp32, fsdp::tiling::RunTime>>;
static_assert(fsdp::check_model<Model>());

int main() {
  fsdp::train::TrainOptions options{.steps = 60, .seq_len = 48, .batch_size = 8, .lr = 1e-2, .log_every = 10};
  options.launch.ranks = 2;
  return fsdp::train::launch<Comm>(options.launch, [&](Comm& communicator) {
    const Model model(forecaster::Config{});
    const forecaster::Seasons source{.series = model.config().series, .length = options.seq_len};
    fsdp::train::Trainer<Model, forecaster::Seasons>(communicator, options, model, source, {}, {}).run();
  });
}
