// SPDX-License-Identifier: Apache-2.0
/// @file
/// Controls of the fake cuBLASLt for tests.
#pragma once

#include <cublasLt.h>

namespace fsdp::testing::cuda_host {

/// The `state` of the heuristic's result. The call itself still succeeds, as the library's may.
struct HeuristicState {
  static inline cublasStatus_t next = CUBLAS_STATUS_SUCCESS;
};

}  // namespace fsdp::testing::cuda_host
