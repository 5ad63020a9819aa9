// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tests set of the double of NCCL.
#pragma once

#include <nccl.h>

namespace fsdp::testing::cuda_host {

/// From here on the communicators of a rank say that they have failed. `ncclSuccess`: they no longer do.
void fail_nccl(int rank, ncclResult_t result);

}  // namespace fsdp::testing::cuda_host
