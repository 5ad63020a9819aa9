// SPDX-License-Identifier: Apache-2.0
/// @file
/// Explicit instantiations of modules on device::Cuda, for the program's stacks over NCCL. They are compiled into
/// tessera::cuda. Those for the dry runs of these stacks are in every build of tessera::tessera.
///
/// A program that includes this file links these instantiations. Without it, a stack on device::Cuda instantiates the
/// modules itself, which takes longer to compile.
#pragma once

#include <tessera/fsdp/device/compute/cuda.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/nn/instances.hpp>

namespace fsdp::nn {

using CudaFp32 = Local<device::Cuda, Fp32>;
using CudaBf16 = Local<device::Cuda, Bf16Mixed>;
using CudaMetaFp32 = Local<device::MetaOf<device::Cuda>, Fp32>;
using CudaMetaBf16 = Local<device::MetaOf<device::Cuda>, Bf16Mixed>;

FSDP_NN_INSTANCES(extern template, CudaFp32)
FSDP_NN_INSTANCES(extern template, CudaBf16)
FSDP_NN_INSTANCES(extern template, CudaMetaFp32)
FSDP_NN_INSTANCES(extern template, CudaMetaBf16)

}  // namespace fsdp::nn
