// SPDX-License-Identifier: Apache-2.0
/// @file
/// The request of a dry run, and the plan that it returns.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/execution/run_shape.hpp>
#include <tessera/fsdp/module/order.hpp>
#include <tessera/fsdp/nn/tile_plans.hpp>
#include <tessera/fsdp/plan/step_record.hpp>
#include <tessera/fsdp/sharding/residency.hpp>

namespace fsdp::plan {

/// A value of Request::rank: the rank that takes the most memory.
inline constexpr int most_loaded = -1;

/// What to plan: a step on one of `ranks` ranks.
struct Request {
  int ranks = 1;
  int rank = 0;                ///< or most_loaded
  std::int64_t sequences = 1;  ///< in one micro-batch
  bool fewer = false;          ///< micro-batches may have fewer sequences: plan for every number
  /// Mean length of the documents that sequences consist of, each counted as often as it has tokens; 0: each sequence
  /// is one. Changes times alone.
  double document_length = 0;
  RunShape shape;  ///< its activation_bytes are ignored
  Purpose purpose = Purpose::train;
  /// Rows of a batch whose logits are computed. 0 means all rows to generate, none to train
  /// (Executor::evaluate_logits).
  std::int64_t logit_rows = 0;
  std::vector<device::MatmulRecord>* matmuls = nullptr;  ///< where to list a training step's matmuls, or nullptr
  StepRecord* record = nullptr;  ///< empty, to be filled with a full training step's tasks, or nullptr
  /// Bytes that a rank's communicator holds, where it is another than the model's; see comm::SimulatedWorld.
  std::int64_t (*scratch_bytes_for)(int ranks) = nullptr;
};

/// The result of a dry run: what a step takes.
struct Plan {
  int rank = 0;
  bool same_on_all_ranks = true;  ///< for most_loaded: whether all ranks hold as much at rest
  device::BytesByKind bytes{};
  std::int64_t activation_bytes = 0;                ///< the arena that the step needs
  std::int64_t offloaded_activation_bytes = 0;      ///< the same in host memory
  std::int64_t offloaded_bytes = 0;                 ///< all host memory that offloading takes; not in `bytes`
  device::Counters work = {};                       ///< of one training step without its optimizer
  std::shared_ptr<const nn::TilePlans> plans = {};  ///< how the step is tiled
  int middle_parts = 1;                             ///< of attention, where several ranks share a sequence
  sharding::Residency residency = {};               ///< how long gathered weights are held by the strategy's budget

  /// Sum of the bytes of all kinds.
  std::int64_t peak_bytes() const {
    std::int64_t sum = 0;
    for (const std::int64_t part : bytes) sum += part;
    return sum;
  }
};

}  // namespace fsdp::plan
