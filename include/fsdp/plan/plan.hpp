// SPDX-License-Identifier: Apache-2.0
/// @file
/// The request of a dry run, and the plan that it returns; and the memory that is still available on this machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/execution/step_size.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/tile_plans.hpp>
#include <tessera/fsdp/sharding/slots.hpp>

namespace fsdp::plan {

struct StepRecord;  // tessera/fsdp/plan/step_record.hpp

/// Special value of Request::rank: the rank that needs the most memory.
inline constexpr int most_loaded = -1;

/// The input of a plan: a step on one of `ranks` ranks.
struct Request {
  int ranks = 1;
  int rank = 0;  ///< number of the rank, or most_loaded
  /// Mean length in tokens of the documents in the sequences, weighted by length; 0: each sequence is one document.
  /// Affects only times.
  double document_length = 0;
  RunShape shape;  ///< shape of the run; its activation_bytes are ignored
  Purpose purpose = Purpose::train;
  std::vector<device::MatmulRecord>* matmuls = nullptr;  ///< output: list of a training step's matmuls; may be nullptr
  StepRecord* record = nullptr;  ///< output: tasks of a full training step, in an empty record; may be nullptr
  /// Returns the bytes of a rank's communicator, if it is not the model's communicator; see comm::SimulatedWorld.
  std::int64_t (*scratch_bytes_for)(int ranks) = nullptr;

  /// Returns the size of the step.
  const StepSize& size() const { return shape.size; }
  /// Returns the number of rows of a full micro-batch.
  std::int64_t rows() const { return size().sequences * size().sequence_length; }
};

/// The communicators with several ranks that a step uses; a backend's memory for them is the cluster's
/// (Cluster::runtime).
struct UsedCommunicators {
  int all = 0;
  /// Those on which ranks send to each other: all_to_all, and sums whose contributions are exchanged.
  int exchanging = 0;
};

/// The memory and the traffic of one strategy of a strategy per unit (fsdp::PerUnit), on the plan's rank.
struct PartPlan {
  std::string name = {};             ///< "embed_tokens|lm_head=replicated", or "otherwise fsdp2"
  DType dtype = DType::f32;          ///< element type of the weights in use
  std::int64_t tensors = 0;          ///< number of tensors
  std::int64_t weight_bytes = 0;     ///< at rest: main weights and model weights, on the device or its host
  std::int64_t gradient_bytes = 0;   ///< at rest
  std::int64_t optimizer_bytes = 0;  ///< optimizer state
  std::int64_t gathered_bytes = 0;   ///< gathers of weights in a training step, counted as in comm::Calls
  std::int64_t reduced_bytes = 0;    ///< reductions of gradients, counted in the same way
};

/// The result of a dry run: the memory and operation counts of a step.
struct Plan {
  int rank = 0;
  bool same_on_all_ranks = true;  ///< for most_loaded: whether all ranks have the same load at rest
  device::BytesByKind bytes{};
  std::int64_t activation_bytes = 0;            ///< size of the arena that the step needs
  std::int64_t offloaded_activation_bytes = 0;  ///< size of the arena in host memory
  std::int64_t offloaded_bytes = 0;             ///< all host memory used by offloading; not in `bytes`
  UsedCommunicators communicators = {};
  device::Counters work = {};                       ///< operation counts of one training step without its optimizer
  std::shared_ptr<const nn::TilePlans> plans = {};  ///< tiling of the step
  int middle_parts = 1;                             ///< number of parts of attention, if several ranks share a sequence
  /// How long gathered weights stay in memory under the strategy's budget.
  sharding::Residency residency = {};
  std::vector<PartPlan> parts = {};  ///< of a training step; empty if all tensors have one strategy and type

  /// Returns the sum of the bytes of all kinds of memory.
  std::int64_t peak_bytes() const {
    std::int64_t sum = 0;
    for (const std::int64_t part : bytes) sum += part;
    return sum;
  }
};

/// Returns the tiling of a full micro-batch as text: one line per tiled unit; equal consecutive blocks are listed once.
/// Defined in tessera/fsdp/plan/dry_run.hpp.
template <class Model>
std::string tiling_text(const Model& model, typename Model::Stack::Tiling tiling, const Request& request);

/// Returns the bytes that may still be allocated: the minimum of the memory that the system reports as available and
/// the memory that the process's control groups (version 1 or 2) leave. `root`: the folder that contains proc and sys.
/// Throws InputError if neither is known.
std::int64_t available_memory(const std::filesystem::path& root = "/");

}  // namespace fsdp::plan

FSDP_LIST(fsdp::plan::PartPlan)  // compiled into the library
