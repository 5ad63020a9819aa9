// SPDX-License-Identifier: Apache-2.0
/// @file
/// The dry run's request for a step of a size, and the shape of the run that its plan gives.
#pragma once

#include <tessera/fsdp/execution/step_size.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/plan/plan.hpp>

namespace fsdp::train {

using fsdp::StepSize;

/// Returns the dry run's request for a step of this size on rank `rank` of `ranks`. Throws InputError if logits are
/// requested while ranks share sequences.
plan::Request plan_request(const StepSize& size, int ranks, int rank, Purpose purpose = Purpose::train,
                           const StepWork& step_work = {});

/// Returns the request's shape with the plan's activation bytes, tile plans and parts of attention: the shape for a
/// ShardedModel.
RunShape planned_shape(const plan::Request& request, const plan::Plan& plan);

}  // namespace fsdp::train
