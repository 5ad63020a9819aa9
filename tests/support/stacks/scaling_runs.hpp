// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs of a model over Threads whose blocks scale their input by weights of unusual kinds. Entry, head and batch are
/// those of examples/06_own_model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

namespace fsdp::test {

/// Kinds of weights of the model's blocks.
enum class ScaleKind : std::uint8_t {
  columns,  ///< [hidden], a separate one for each block
  shared,   ///< [hidden], the same for all blocks
  by_data,  ///< [hidden], read only if a micro-batch's first number is positive
  scalar,   ///< rank 0
  empty,    ///< [0, 8], without elements
};

struct ScalingTask {
  ScaleKind kind = ScaleKind::columns;
  RunTimeAny strategy = {};
  UnitOptions units = {};
};

struct ScalingRun {
  std::vector<double> losses;                       ///< by step
  std::vector<device::BytesByKind> planned, taken;  ///< by rank
};
/// Trains on two ranks up to step `steps`, including the steps before the checkpoint `resume`.
ScalingRun train_scaling(const ScalingTask& task, int steps, const std::filesystem::path& save_to = {},
                         const std::filesystem::path& resume = {});

/// Compares gradients with finite differences of the loss. `where` is a prefix of failure messages.
void check_scaling_gradients(std::string_view where, int ranks, const ScalingTask& task);

/// A rank's weights by name, before and after a step.
struct ScalingStep {
  std::map<std::string, std::vector<float>> before, after;
};
ScalingStep step_scaling(comm::Threads<>& communicator, const ScalingTask& task);

}  // namespace fsdp::test
