// SPDX-License-Identifier: Apache-2.0
/// @file
/// ncclCommAbort on a separate thread.
#pragma once

#include <chrono>
#include <future>
#include <thread>

#include <tessera/comm/nccl_table.hpp>

namespace fsdp::comm {

/// Runs ncclCommAbort in the background. The call first stops NCCL's kernels, then waits until no CUDA graph contains a
/// collective of the communicator. Graphs are destroyed while the failure unwinds the stack, so the failing thread must
/// not wait for them.
class NcclAbort {
 public:
  NcclAbort() = default;
  NcclAbort(const NcclAbort&) = delete;
  NcclAbort& operator=(const NcclAbort&) = delete;
  ~NcclAbort() { finish(std::chrono::seconds(20)); }

  /// Starts the abort; call it at most once. The communicator must not be used afterwards.
  void start(const nccl::Table& table, nccl::Comm comm) noexcept;
  /// Waits up to `limit` for the abort to end. If a graph still contains a collective then, detaches the thread.
  void finish(std::chrono::milliseconds limit) noexcept;

 private:
  std::thread thread_;
  std::future<void> done_;
};

}  // namespace fsdp::comm
