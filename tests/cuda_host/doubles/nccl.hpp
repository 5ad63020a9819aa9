// SPDX-License-Identifier: Apache-2.0
/// @file
/// Controls of the fake NCCL for tests.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include <nccl.h>

namespace fsdp::testing::cuda_host {

/// From now on, the communicators of a rank report this failure; `ncclSuccess` ends it.
void fail_nccl(int rank, ncclResult_t result);
/// Whether ranks of one host too are notified when a peer aborts, as over a network. False by default.
void tell_of_nccl_aborts(bool tell);
/// From now on, the kernels of a rank take longer by `by`, after all ranks have sent their data.
void slow_nccl(int rank, std::chrono::milliseconds by);
/// Returns and clears the number of calls with a source and a destination, by communicator ("world", "split 0", ...)
/// and by how many of the two are registered with it: "world, 2 registered".
std::map<std::string, int> take_calls_by_registered_buffers();
/// Whether communicators that are made from now on obey NCCL_LAUNCH_ORDER_IMPLICIT, as they do at first.
void keep_nccl_launch_order(bool keep);
/// From now on, the loaded library is of this version, as NCCL_VERSION_CODE is.
void set_nccl_version(int version);
/// From now on, this process joins the first communicator of its ranks later by `by`.
void slow_nccl_start(std::chrono::milliseconds by);
/// From now on, communicators are files in that folder, so that their ranks may be other processes.
void share_nccl(const std::string& folder);

}  // namespace fsdp::testing::cuda_host
