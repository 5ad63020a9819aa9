// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of CUDA's runtime with their errors in our family. Host sources of this folder only.
#pragma once

#include <cuda_runtime.h>

#include <fsdp/core/error.hpp>

namespace fsdp::device::cuda {

/// With NaN, so that what reads it is found: debug builds.
#if defined(NDEBUG)
inline constexpr bool fills_released_memory = false;
#else
inline constexpr bool fills_released_memory = true;
#endif

/// Throws unless the call went well; `what` is what was being done. An error that a kernel made earlier is sticky: it
/// shows in the next call, whichever that is, and nothing on this device works again in this process.
inline void require_success(cudaError_t status, const char* what) {
  require<Error>(status == cudaSuccess, "CUDA, ", what, ": ", cudaGetErrorString(status), " (",
                 cudaGetErrorName(status), "), here or in work queued before");
}

/// Whether this build has code for the calling thread's device.
cudaError_t probe();

}  // namespace fsdp::device::cuda
