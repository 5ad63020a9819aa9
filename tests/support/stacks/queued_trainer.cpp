// SPDX-License-Identifier: Apache-2.0
#include <comm/threads.hpp>
#include <fsdp/train/trainer.hpp>

#include <support/queued/queued_stack.hpp>
#include <support/stacks/trainers.hpp>

namespace fsdp::test {
namespace {

template <class Model>
void train(const train::TrainOptions& options) {
  using Comm = typename Model::Stack::Comm;
  train::launch<Comm>(options.launch,
                      [&](Comm& communicator) { train::Trainer<Model>(communicator, options, {}, {}).run(); });
}

}  // namespace

std::vector<std::string> train_queued(const train::TrainOptions& options) {
  train<QueuedLlama<FullyShard<>>>(options);
  return QueuedCpu::take_races();
}
void train_on_cpu(const train::TrainOptions& options) {
  train<Llama<Stack<FullyShard<>, comm::Threads<>, Fp32, tiling::RunTime>>>(options);
}

}  // namespace fsdp::test
