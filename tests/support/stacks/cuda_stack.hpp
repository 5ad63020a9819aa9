// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stacks whose ranks are threads that share a GPU, with their modules compiled once.
#pragma once

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/cuda.hpp>
#include <tessera/fsdp/nn/instances.hpp>

#include <support/stack_run.hpp>

namespace fsdp::nn {

template <class Device, class Precision>
using TestLocal = Local<Device, Precision>;
using CudaFp32 = TestLocal<device::Cuda, Fp32>;
using CudaBf16 = TestLocal<device::Cuda, Bf16Mixed>;
using PlannedCudaFp32 = TestLocal<device::MetaOf<device::Cuda>, Fp32>;
using PlannedCudaBf16 = TestLocal<device::MetaOf<device::Cuda>, Bf16Mixed>;

FSDP_NN_INSTANCES(extern template, CudaFp32)
FSDP_NN_INSTANCES(extern template, CudaBf16)
FSDP_NN_INSTANCES(extern template, PlannedCudaFp32)
FSDP_NN_INSTANCES(extern template, PlannedCudaBf16)

}  // namespace fsdp::nn

namespace fsdp::test {

template <class Sharding, class Precision = Fp32>
using CudaLlama = Llama<Stack<Sharding, comm::Threads<device::Cuda>, Precision, tiling::RunTime>>;

}  // namespace fsdp::test
