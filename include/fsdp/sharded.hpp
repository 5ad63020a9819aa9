// SPDX-License-Identifier: Apache-2.0
/// @file
/// The header for programs that shard their own tensors and computation: policies of sharding and precision, `Stack`,
/// `Sharded` and its passes. Include a communicator's header in addition (tessera/comm/threads.hpp, mpi.hpp, nccl.hpp).
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/sharded.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
