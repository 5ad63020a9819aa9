// SPDX-License-Identifier: Apache-2.0
/// @file
/// Functions of the host and of GPUs, written once.
#pragma once

#if defined(__CUDACC__)
#define FSDP_BOTH __host__ __device__ __forceinline__  ///< a function of the host and the device
#else
#define FSDP_BOTH inline
#endif
