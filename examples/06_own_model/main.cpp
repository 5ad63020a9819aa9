// SPDX-License-Identifier: Apache-2.0
// 06: a model of your own, without tokens: it forecasts several time series. Each of two ranks stores half of the
// weights.
//
// Prints the falling loss, then a picture of a held-out window: `o` is the true value, `*` the forecast that was made
// one time step before, `@` both at the same place.
//
// Try next: change the values of Config, or replace the series in source.hpp by your own; change FullyShard to
// fsdp::Zero3; tile the MLP: pass fsdp::tiling::RunTimeTiling::tokens(16) as the tiling of Trainer and Evaluation.
#include <string>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/trainer/run/trainer.hpp>
#include <tessera/trainer/train_main.hpp>

#include "model.hpp"
#include "picture.hpp"
#include "source.hpp"

using Comm = fsdp::comm::Threads<>;
using Model = forecaster::Forecaster<fsdp::Stack<fsdp::FullyShard<>, Comm, fsdp::Fp32, fsdp::tiling::RunTimeTiling>>;
static_assert(fsdp::check_model<Model>());

/// Forecasts each next value of a held-out window, and draws the second series of the window.
void draw(Comm& communicator, const Model& model, const std::string& checkpoint, const forecaster::Seasons& source) {
  fsdp::train::Evaluation<Model> evaluation(communicator, model, {.sequence_length = source.length, .threads = 1}, {},
                                            {}, fsdp::Purpose::generate);
  fsdp::train::load_agreed_weights(communicator, evaluation.module(), checkpoint, {});
  auto storage = source.storage(1, [](std::int64_t bytes) {
    return std::shared_ptr<std::byte>(new std::byte[static_cast<std::size_t>(bytes)],
                                      std::default_delete<std::byte[]>());
  });
  const forecaster::Batch batch = source.fill(storage, std::vector<std::int64_t>{source.windows - 2});
  std::vector<float> outputs(static_cast<std::size_t>(source.length * source.series));
  evaluation.executor().logits(batch, {outputs.data(), {source.length, source.series}});
  if (communicator.rank() != 0) return;
  std::vector<float> happened, forecast;
  for (std::int64_t time = 0; time < source.length; ++time) {
    happened.push_back(batch.targets.data()[time * source.series + 1]);
    forecast.push_back(outputs[static_cast<std::size_t>(time * source.series + 1)]);
  }
  forecaster::print_picture(happened, forecast);
}

int main(int argc, char** argv) {
  fsdp::train::TrainOptions options{.steps = 60, .seq_len = 64, .batch_size = 8, .lr = 1e-2, .log_every = 10};
  const std::string folder = argc > 1 ? argv[1] : "forecaster";
  options.checkpoint_dir = folder;
  options.resume = "auto";  // a second run resumes after the last step of the first, and has nothing left to train
  options.launch.ranks = 2;
  return fsdp::train::launch<Comm>(options.launch, [&](Comm& communicator) {
    const Model model(forecaster::Config{});
    const forecaster::Seasons source{.series = model.config().series, .length = options.seq_len};
    using Trainer = fsdp::train::Trainer<Model, forecaster::Seasons>;
    const int status = Trainer(communicator, options, model, source, {}, {}).run();
    if (status == 0) draw(communicator, model, folder + "/step-00000060", source);
    return status;  // not 0 if a signal ended the training
  });
}
