// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/run_time.hpp>

#include <support/queued/queued_stack.hpp>
#include <support/stacks/trainer_run.hpp>
#include <support/stacks/trainers.hpp>

namespace fsdp::test {

std::vector<std::string> train_queued(const train::TrainOptions& options) {
  run_trainer<QueuedLlama<RunTimeAny>>(options);
  return QueuedCpu::take_races();
}

}  // namespace fsdp::test
