// SPDX-License-Identifier: Apache-2.0
/// @file
/// Error handling of CUDA runtime calls, for the host source files of this folder.
#pragma once

#include <cuda_runtime.h>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::device::cuda {

/// Whether released memory is filled with NaN, so that stale reads are noticed. Set in debug builds.
#if defined(NDEBUG)
inline constexpr bool fills_released_memory = false;
#else
inline constexpr bool fills_released_memory = true;
#endif

/// Throws unless the call succeeded; `what` describes the action. The error of an earlier kernel is sticky: the next
/// call of any kind returns it, and the device is unusable in this process from then on.
inline void require_success(cudaError_t status, const char* what) {
  require<Error>(status == cudaSuccess, "CUDA, ", what, ": ", cudaGetErrorString(status), " (",
                 cudaGetErrorName(status), "), here or in work queued before");
}

/// Returns whether this build has code for the calling thread's device.
cudaError_t probe();

}  // namespace fsdp::device::cuda
