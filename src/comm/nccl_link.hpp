// SPDX-License-Identifier: Apache-2.0
/// @file
/// Owns one rank's ncclComm_t; all its calls have a deadline.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include <tessera/comm/nccl_table.hpp>

namespace fsdp::comm {

/// One rank's ncclComm_t. Every failure aborts the communicator, so that its kernels stop waiting, and throws
/// CollectiveError, as does every later call.
class NcclLink {
 public:
  using Deadline = std::chrono::milliseconds;

  NcclLink(const nccl::Table& table, const nccl::Seat& seat, Deadline deadline);
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  ~NcclLink();

  const nccl::Table& table() const { return table_; }
  bool alive() const { return comm_ != nullptr; }

  /// Enqueues one group of calls. Returns when the group is enqueued; the first call also waits for the peers' hosts.
  void issue(std::span<const nccl::Call> calls, nccl::Stream stream, Deadline deadline);
  /// Throws if this communicator has failed here, or if NCCL reports a failure elsewhere.
  void check();
  /// Returns whether the communicator has failed on another rank. Throws if it has failed on this rank.
  bool has_lost_peer();
  std::unique_ptr<NcclLink> split(int color, int key, Deadline deadline);

  /// Registers memory and returns the handle; null if NCCL is too old or the communicator has ended.
  void* register_memory(void* data, std::size_t bytes);
  void deregister_memory(void* handle) noexcept;

  /// Finalises and destroys the communicator, after all its work is done on all ranks. Aborts it at the deadline.
  void end(Deadline deadline) noexcept;
  /// Starts ncclCommAbort on another thread and returns immediately. The call first stops NCCL's kernels, then waits
  /// until no CUDA graph contains a collective of the communicator. Graphs are destroyed while the failure unwinds the
  /// stack, so the failing thread must not wait for them.
  void give_up() noexcept;
  /// Waits up to `limit` for the end of an abort, if one was started. If a graph still contains a collective then,
  /// detaches the thread.
  void finish_abort(Deadline limit) noexcept;
  [[noreturn]] void fail(const std::string& reason);

 private:
  NcclLink(const nccl::Table& table, nccl::Comm comm) : table_(table), comm_(comm) {}
  nccl::Result state();
  void require_nccl_success(nccl::Result result, std::string_view what);
  void settle(std::string_view what, Deadline deadline);

  const nccl::Table& table_;
  nccl::Comm comm_ = nullptr;
  nccl::Comm made_ = nullptr;  ///< the result of a split, which NCCL may set late
  std::thread aborting_;
  std::future<void> aborted_;
  std::string failure_ = "it has ended";
};

}  // namespace fsdp::comm
