// SPDX-License-Identifier: Apache-2.0
/// @file
/// ncclCommAbort on a thread of its own.
#pragma once

#include <chrono>
#include <future>
#include <thread>

#include <comm/nccl_table.hpp>

namespace fsdp::comm {

/// The library's abort first tells its kernels to end, then waits until no graph holds a collective of the
/// communicator. Graphs are destroyed by the unwinding that a failure starts, so the thread that fails must not wait
/// for that.
class NcclAbort {
 public:
  NcclAbort() = default;
  NcclAbort(const NcclAbort&) = delete;
  NcclAbort& operator=(const NcclAbort&) = delete;
  ~NcclAbort() { finish(std::chrono::seconds(20)); }

  /// Once. The communicator is the library's from here on.
  void start(const nccl::Table& table, nccl::Comm comm) noexcept;
  /// Waits until it is done. After `limit` somebody still holds a graph: the thread is left behind.
  void finish(std::chrono::milliseconds limit) noexcept;

 private:
  std::thread thread_;
  std::future<void> done_;
};

}  // namespace fsdp::comm
