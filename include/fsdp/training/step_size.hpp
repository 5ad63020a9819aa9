// SPDX-License-Identifier: Apache-2.0
/// @file
/// The size of one rank's step, and the dry run's request for it.
#pragma once

#include <cstdint>

#include <tessera/fsdp/execution/run_shape.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/plan/plan.hpp>

namespace fsdp::train {

/// The size of one rank's step.
struct StepSize {
  std::int64_t sequences = 1;  ///< number of sequences in one micro-batch
  bool fewer = false;  ///< whether micro-batches may have fewer sequences; each number is planned, which takes longer
  std::int64_t sequence_length = 0;  ///< number of positions of a sequence
  int ranks_per_sequence = 1;    ///< ranks that share each sequence; above 1 only with Ulysses as the stack's Sequence
  int middle_parts = 0;          ///< see RunShape::middle_parts
  int micro_batches = 1;         ///< number in a step; see sharding::micro_batches_of if it is cut into pieces
  int threads = 0;               ///< number of threads of each rank; 0: cores / ranks, at least 1
  std::int64_t logit_rows = 0;   ///< see plan::Request::logit_rows
  std::int64_t cached_rows = 0;  ///< see RunShape::cached_rows
  bool digests = false;          ///< see RunShape::digests
  bool verifies = false;         ///< see RunShape::verifies
};

/// Returns the dry run's request for a step of this size on rank `rank` of `ranks`. Throws InputError if logits are
/// requested while ranks share sequences.
plan::Request plan_request(const StepSize& size, int ranks, int rank, Purpose purpose = Purpose::train);

/// Returns the request's shape with the plan's activation bytes, tile plans and parts of attention: the shape for a
/// ShardedModel.
RunShape planned_shape(const plan::Request& request, const plan::Plan& plan);

}  // namespace fsdp::train
