// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/training.hpp>

#include <fsdp/train/cores.hpp>

namespace fsdp::train {

plan::Request plan_request(const StepSize& size, int ranks, int rank, Purpose purpose) {
  return {.ranks = ranks,
          .rank = rank,
          .sequences = size.sequences,
          .fewer = size.fewer,
          .shape = {.sequence_length = size.sequence_length,
                    .micro_batches = size.micro_batches,
                    .threads = rank_threads(size.threads, ranks),
                    .cached_rows = size.cached_rows},
          .purpose = purpose,
          .logit_rows = size.logit_rows};
}

StepSize step_size(const TrainOptions& options, int ranks) {
  return {.sequences = options.batch_size / (ranks * options.grad_accum),
          .sequence_length = options.seq_len,
          .micro_batches = static_cast<int>(options.grad_accum),
          .threads = static_cast<int>(options.launch.threads),
          .logit_rows = options.sample_prompt ? 1 : 0};
}

plan::Request plan_request(const TrainOptions& options, int ranks, StepWork work) {
  plan::Request request = plan_request(step_size(options, ranks), ranks, plan::most_loaded);
  request.shape.step_work = work;
  return request;
}

RunShape planned_shape(const plan::Request& request, const plan::Plan& plan) {
  RunShape shape = request.shape;
  shape.activation_bytes = plan.activation_bytes;
  shape.offloaded_activation_bytes = plan.offloaded_activation_bytes;
  return shape;
}

}  // namespace fsdp::train
