// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tests set of the double of cuBLASLt.
#pragma once

#include <cublasLt.h>

namespace fsdp::testing::cuda_host {

/// The state of what the heuristic finds, which succeeds all the same, as the library's may.
struct HeuristicState {
  static inline cublasStatus_t next = CUBLAS_STATUS_SUCCESS;
};

}  // namespace fsdp::testing::cuda_host
