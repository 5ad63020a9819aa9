// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tests set of the double of NCCL.
#pragma once

#include <chrono>
#include <string>

#include <nccl.h>

namespace fsdp::testing::cuda_host {

/// From here on the communicators of a rank say that they have failed. `ncclSuccess`: they no longer do.
void fail_nccl(int rank, ncclResult_t result);
/// Whether ranks hear that a peer has aborted, as over a network; within a machine they may not. At first they do.
void tell_of_nccl_aborts(bool tell);
/// From here on the kernels of a rank take so much longer, once all ranks have sent what they need.
void slow_nccl(int rank, std::chrono::milliseconds by);
/// Communicators from here on are files of that folder: their ranks may be other processes.
void share_nccl(const std::string& folder);

}  // namespace fsdp::testing::cuda_host
