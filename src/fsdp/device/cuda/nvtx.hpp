// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names for profilers (NVTX, header only): for ranges, which CudaRange owns, and for streams.
#pragma once

#include <cuda_runtime.h>

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>

namespace fsdp::device::cuda {

inline void begin_range(const char* name) { nvtxRangePushA(name); }
inline void end_range() { nvtxRangePop(); }
inline void name_for_profilers(cudaStream_t stream, const char* name) { nvtxNameCudaStreamA(stream, name); }

}  // namespace fsdp::device::cuda
