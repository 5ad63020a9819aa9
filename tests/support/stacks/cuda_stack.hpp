// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stacks whose ranks are threads that share a GPU.
#pragma once

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/cuda.hpp>
#include <tessera/fsdp/nn/cuda_instances.hpp>

#include <support/stack_run.hpp>

namespace fsdp::test {

template <class Sharding, class Precision = Fp32>
using CudaLlama = Llama<Stack<Sharding, comm::Threads<device::Cuda>, Precision, tiling::RunTimeTiling>>;

}  // namespace fsdp::test
