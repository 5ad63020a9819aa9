// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stacks whose ranks are threads that share an asynchronous device.
#pragma once

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sequence/ulysses.hpp>

#include <support/queued/modules.hpp>
#include <support/stack_run.hpp>

namespace fsdp::test {

using testing::QueuedCpu;

template <class Sharding>
using QueuedLlama = Llama<Stack<Sharding, comm::Threads<QueuedCpu>, Fp32, tiling::RunTimeTiling, Ulysses>>;

}  // namespace fsdp::test
