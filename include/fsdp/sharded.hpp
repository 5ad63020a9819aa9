// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a program includes to shard code of its own: policies of sharding and precision, `Stack`, `Sharded` and its
/// passes. A communicator's header comes besides (tessera/comm/threads.hpp, mpi.hpp, nccl.hpp).
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/sharded.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
