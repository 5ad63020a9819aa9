// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/step_plan.hpp>

namespace fsdp::train {

StepSize step_size(const TrainOptions& options, int ranks) {
  return {.sequences = options.batch_size / (ranks * options.grad_accum),
          .sequence_length = options.seq_len,
          .micro_batches = static_cast<int>(options.grad_accum),
          .threads = static_cast<int>(options.launch.threads),
          .logit_rows = options.sample_prompt ? 1 : 0};
}

StepSize required_step_size(const TrainOptions& options, int ranks, bool writes_text) {
  require_samples(options, writes_text);
  TrainOptions checked = options;  // a program's own values: no command line has looked at them
  FlagSet flags;
  bind(flags, checked);
  flags.require_ranges();
  return step_size(options, ranks);
}

plan::Request plan_request(const TrainOptions& options, int ranks, StepWork work) {
  plan::Request request = plan_request(step_size(options, ranks), ranks, plan::most_loaded);
  request.shape.step_work = work;
  return request;
}

}  // namespace fsdp::train
