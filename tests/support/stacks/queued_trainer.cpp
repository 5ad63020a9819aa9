// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/threads.hpp>
#include <tessera/trainer/run/train.hpp>
#include <tessera/trainer/run/trainer.hpp>

#include <support/queued/queued_stack.hpp>
#include <support/stacks/trainers.hpp>

namespace fsdp::test {
namespace {

template <class Model>
void run_trainer(const train::TrainOptions& options) {
  using Comm = typename Model::Stack::Comm;
  const int status = train::launch<Comm>(options.launch, [&](Comm& communicator) {
    const Model model = train::model_of<Model>(options);
    const data::TextSource source =
        train::text_of(options, data::parse_data(options.data), options.validation_fraction, model.config().vocab_size);
    return train::Trainer<Model, data::TextSource>(communicator, options, model, source, {}, {}).run();
  });
  require(status == 0, "a run of the test ended with status ", status);
}

}  // namespace

std::vector<std::string> train_queued(const train::TrainOptions& options) {
  run_trainer<QueuedLlama<FullyShard<>>>(options);
  return QueuedCpu::take_races();
}
void train_on_cpu(const train::TrainOptions& options) {
  run_trainer<Llama<Stack<FullyShard<>, comm::Threads<>, Fp32, tiling::RunTimeTiling>>>(options);
}

}  // namespace fsdp::test
