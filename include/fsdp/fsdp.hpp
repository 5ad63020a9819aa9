// SPDX-License-Identifier: Apache-2.0
/// @file
/// The library in one header: policies of sharding, precision and tiling, `Stack`, `ShardedModule`, models, optimizers
/// and `Training`.
///
/// Include the communicator's header yourself (tessera/comm/threads.hpp, tessera/comm/mpi.hpp, tessera/comm/self.hpp).
/// Checkpoints are in tessera/fsdp/checkpoint (shards: tessera/fsdp/checkpoint/shards_io.hpp), model folders are in
/// tessera/fsdp/model_files, and a complete training program is tessera/trainer/train_main.hpp.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <tessera/fsdp/execution/instances.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/fsdp/version.hpp>
#include <tessera/tiling/policies.hpp>
