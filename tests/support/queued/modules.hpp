// SPDX-License-Identifier: Apache-2.0
/// @file
/// The modules of queued stacks, compiled once.
#pragma once

#include <tessera/fsdp/nn/instances.hpp>
#include <tessera/fsdp/testing/queued/queued_cpu.hpp>

namespace fsdp::nn {

using QueuedFp32 = Local<testing::QueuedCpu, Fp32>;
using QueuedMetaFp32 = Local<device::MetaOf<testing::QueuedCpu>, Fp32>;
FSDP_NN_INSTANCES(extern template, QueuedFp32)
FSDP_NN_INSTANCES(extern template, QueuedMetaFp32)

}  // namespace fsdp::nn
