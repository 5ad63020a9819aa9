// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names for profilers (NVTX, header only): ranges of host code and of what it queues, and streams. They cost nothing
/// unless a profiler is attached.
#pragma once

#include <cuda_runtime.h>

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>

namespace fsdp::device::cuda {

/// Shown from its construction to its destruction, nested in the thread's ranges around it.
class ProfilerRange {
 public:
  explicit ProfilerRange(const char* name) { nvtxRangePushA(name); }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
  ~ProfilerRange() { nvtxRangePop(); }
};

inline void name_for_profilers(cudaStream_t stream, const char* name) { nvtxNameCudaStreamA(stream, name); }

}  // namespace fsdp::device::cuda
