// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/step_plan.hpp>

#include <tessera/fsdp/sharding/rules.hpp>
#include <tessera/trainer/flags/flags.hpp>
#include <tessera/trainer/generate/samples.hpp>

namespace fsdp::train {

StepSize step_size(const TrainOptions& options, int ranks, int pieces) {
  check_batch(options, ranks, pieces);
  const int groups = static_cast<int>(groups_of(options.sequence, ranks));
  return {
      .sequences = options.batch_size / (pieces > 0 ? pieces : groups * options.grad_accum),
      .sequence_length = options.seq_len,
      .ranks_per_sequence = options.sequence.ranks,
      .middle_parts = options.sequence.parts,
      .micro_batches = pieces > 0 ? sharding::micro_batches_of(pieces, groups) : static_cast<int>(options.grad_accum),
      .threads = static_cast<int>(options.launch.threads),
      .logit_rows = options.sample_prompt ? 1 : 0,
      .digests = options.digests.has_value(),
      .verifies = options.verify_every > 0};
}

StepSize required_step_size(const TrainOptions& options, int ranks, int pieces, bool writes_text) {
  require_samples(options, writes_text);
  TrainOptions checked = options;  // a program's own values: no command line has looked at them
  FlagSet flags;
  bind(flags, checked);
  flags.require_ranges();
  return step_size(options, ranks, pieces);
}

plan::Request plan_request(const TrainOptions& options, int ranks, int pieces, StepWork work) {
  plan::Request request = plan_request(step_size(options, ranks, pieces), ranks, plan::most_loaded);
  request.shape.step_work = work;
  return request;
}

}  // namespace fsdp::train
