// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/training/step_size.hpp>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::train {

plan::Request plan_request(const StepSize& size, int ranks, int rank, Purpose purpose, const StepWork& step_work) {
  require<InputError>(size.ranks_per_sequence <= 1 || (purpose != Purpose::generate && size.logit_rows == 0),
                      "sequence: ", size.ranks_per_sequence,
                      " ranks are to share each sequence, and logits are made of whole ones; take 1 rank");
  plan::Request request{
      .ranks = ranks, .rank = rank, .shape = {.size = size, .step_work = step_work}, .purpose = purpose};
  request.shape.size.threads = comm::rank_threads(size.threads, ranks);
  return request;
}

RunShape planned_shape(const plan::Request& request, const plan::Plan& plan) {
  RunShape shape = request.shape;
  shape.activation_bytes = plan.activation_bytes;
  shape.offloaded_activation_bytes = plan.offloaded_activation_bytes;
  shape.plans = plan.plans;
  shape.size.middle_parts = plan.middle_parts;
  return shape;
}

}  // namespace fsdp::train
