// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/training/training.hpp>

#include <tessera/comm/launch/cores.hpp>

namespace fsdp::train {

plan::Request plan_request(const StepSize& size, int ranks, int rank, Purpose purpose) {
  return {.ranks = ranks,
          .rank = rank,
          .sequences = size.sequences,
          .fewer = size.fewer,
          .shape = {.sequence_length = size.sequence_length,
                    .micro_batches = size.micro_batches,
                    .threads = comm::rank_threads(size.threads, ranks),
                    .cached_rows = size.cached_rows,
                    .digests = size.digests,
                    .verifies = size.verifies},
          .purpose = purpose,
          .logit_rows = size.logit_rows};
}

RunShape planned_shape(const plan::Request& request, const plan::Plan& plan) {
  RunShape shape = request.shape;
  shape.activation_bytes = plan.activation_bytes;
  shape.offloaded_activation_bytes = plan.offloaded_activation_bytes;
  shape.plans = plan.plans;
  return shape;
}

}  // namespace fsdp::train
