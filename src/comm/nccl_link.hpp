// SPDX-License-Identifier: Apache-2.0
/// @file
/// One rank's ncclComm_t: made, polled and ended within a deadline.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <comm/nccl_table.hpp>

#include "nccl_abort.hpp"

namespace fsdp::comm {

/// Every failure aborts the communicator, so that no kernel of it waits any longer, and is a CollectiveError; so is
/// every later call.
class NcclLink {
 public:
  using Deadline = std::chrono::milliseconds;

  NcclLink(const nccl::Table& table, const nccl::Seat& seat, Deadline deadline);
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  ~NcclLink() { abort(); }

  const nccl::Table& table() const { return table_; }
  bool alive() const { return comm_ != nullptr; }

  /// One group. Returns when the device has it, which the first time takes the peers' hosts.
  void issue(std::span<const nccl::Call> calls, nccl::Stream stream, Deadline deadline);
  /// Throws where this communicator has failed, here or, as far as the library knows, elsewhere.
  void check();
  std::unique_ptr<NcclLink> split(int color, int key, Deadline deadline);

  /// Null where the library cannot, or no longer has the communicator.
  void* register_memory(void* data, std::size_t bytes);
  void deregister_memory(void* handle) noexcept;

  /// Everything was done on all ranks: gives the communicator back.
  void end(Deadline deadline) noexcept;
  /// Returns at once, though graphs may hold collectives of the communicator: see nccl_abort.hpp.
  void abort() noexcept;
  /// Waits for the end of an abort, where there is one. Graphs should be gone by now.
  void finish_abort(Deadline deadline) noexcept { abort_.finish(deadline); }
  [[noreturn]] void fail(const std::string& reason);

 private:
  NcclLink(const nccl::Table& table, nccl::Comm comm) : table_(table), comm_(comm) {}
  void require_good(nccl::Result result, std::string_view what);
  void settle(std::string_view what, Deadline deadline);

  const nccl::Table& table_;
  nccl::Comm comm_ = nullptr;
  nccl::Comm made_ = nullptr;  ///< by a split; the library may set it late
  NcclAbort abort_;
  std::string failure_ = "it has ended";
};

}  // namespace fsdp::comm
