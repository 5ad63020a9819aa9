// SPDX-License-Identifier: Apache-2.0
/// @file
/// An empty kernel, to find out whether this build has code for a device.
#include "runtime.hpp"

namespace fsdp::device::cuda {
namespace {

__global__ void nothing() {}

}  // namespace

cudaError_t probe() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, nothing);
}

}  // namespace fsdp::device::cuda
