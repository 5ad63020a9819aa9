// SPDX-License-Identifier: Apache-2.0
/// @file
/// A macro for functions that compile for the host and for GPUs.
#pragma once

#if defined(__CUDACC__)
#define FSDP_BOTH __host__ __device__ __forceinline__  ///< compiles a function for host and device
#else
#define FSDP_BOTH inline
#endif
