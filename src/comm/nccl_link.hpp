// SPDX-License-Identifier: Apache-2.0
/// @file
/// Owns one rank's ncclComm_t; all its calls have a deadline. All that belong to one rank fail together. Also
/// translates each collective of tensors into groups of NCCL calls, and the sums that follow them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include <tessera/comm/nccl_rank.hpp>
#include <tessera/comm/nccl_table.hpp>
#include <tessera/comm/queued_core.hpp>
#include <tessera/comm/transfer.hpp>

namespace fsdp::comm {

class NcclLink;

namespace nccl {
std::string version_text(int code);  ///< "2.28.9" of NCCL_VERSION_CODE
}

/// The communicators of one rank: the world's, and all that were split from it. A failure aborts all of them, because
/// freeing memory waits for the kernels of all, and so does NCCL's own abort.
struct NcclFamily {
  NcclStart start;
  std::chrono::milliseconds start_deadline;
  std::mutex mutex = {};              ///< guards the links and their ncclComm_t, which the watch's thread may abort
  std::vector<NcclLink*> links = {};  ///< all that exist; only the rank's thread changes the list
  std::string failure = "";           ///< the first failure; used by the rank's thread alone

  bool has_lost_peer() const { return start.watch != nullptr && start.watch->has_failure(); }
  void give_up() noexcept;
};

/// One rank's ncclComm_t. Every failure aborts all communicators of the rank, so that their kernels stop waiting, and
/// throws CollectiveError, as does every later call.
class NcclLink {
 public:
  using Deadline = std::chrono::milliseconds;

  NcclLink(const nccl::Table& table, const nccl::Seat& seat, const Options& options, const NcclStart& start);
  /// Splits a communicator of all its ranks off `host`, which this class neither uses again nor ends. Collective.
  static std::unique_ptr<NcclLink> duplicate(const nccl::Table& table, nccl::Comm host, int rank,
                                             const Options& options);
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  ~NcclLink();

  const nccl::Table& table() const { return table_; }
  bool alive() const {
    return locked([this] { return comm_ != nullptr; });
  }

  /// Enqueues one group of calls. Returns when the group is enqueued; the first call also waits for the peers' hosts.
  void issue(std::span<const nccl::Call> calls, nccl::Stream stream, Deadline deadline);
  /// Throws if a communicator of this rank has failed here, or if NCCL or the watch reports a failure elsewhere.
  void check();
  /// Returns whether another rank has failed. Throws if a communicator has failed on this rank.
  bool has_lost_peer();
  std::unique_ptr<NcclLink> split(int color, int key, Deadline deadline);

  /// Registers memory and returns the handle; null if NCCL is too old or the communicator has ended.
  void* register_memory(void* data, std::size_t bytes);
  void deregister_memory(void* handle) noexcept;

  /// Finalises and destroys the communicator, after all its work is done on all ranks. Aborts it at the deadline.
  void end(Deadline deadline) noexcept;
  /// Starts ncclCommAbort of all communicators of the rank, each on another thread, and returns immediately. The call
  /// first stops NCCL's kernels, then waits until no CUDA graph contains a collective of the communicator. Graphs are
  /// destroyed while the failure unwinds the stack, so the failing thread must not wait for them.
  void give_up() noexcept { family_->give_up(); }
  /// Waits up to `limit` for the end of this communicator's abort, if one was started. If a graph still contains a
  /// collective then, detaches the thread.
  void finish_abort(Deadline limit) noexcept;
  [[noreturn]] void fail(const std::string& reason);

 private:
  friend struct NcclFamily;
  NcclLink(const nccl::Table& table, std::shared_ptr<NcclFamily> family, nccl::Comm comm);
  static constexpr auto ended = static_cast<nccl::Result>(-1);  ///< none of NCCL's: the communicator has ended
  /// Returns f(), during which no other thread aborts communicators.
  template <class F>
  std::invoke_result_t<F> locked(const F& f) const {
    const std::lock_guard lock(family_->mutex);
    return f();
  }
  /// The same for a call on the communicator. Returns `ended` if it has.
  template <class F>
  nccl::Result on_comm(const F& f) {
    return locked([&] { return comm_ == nullptr ? ended : f(); });
  }
  nccl::Result own_state();
  nccl::Result state();  ///< the first failure of the rank's communicators or peers; otherwise this one's state
  void start_abort() noexcept;
  void require_nccl_success(nccl::Result result, std::string_view what);
  void settle(std::string_view what, Deadline deadline, bool connects);

  const nccl::Table& table_;
  nccl::Comm comm_ = nullptr;
  nccl::Comm made_ = nullptr;  ///< the result of a split, which NCCL may set late
  std::shared_ptr<NcclFamily> family_;
  bool connected_ = false;  ///< whether a group has met all ranks
  std::thread aborting_;
  std::future<void> aborted_;
};

/// One rank of an NCCL communicator, with the queue and the device memory that its collectives use.
struct NcclLane {
  int rank = 0;
  int size = 1;
  NcclLink& link;
  const AnyQueue& queue;
  std::byte* staging = nullptr;
  std::int64_t staging_bytes = 0;
  NcclLink::Deadline deadline{};
};

/// Enqueues a collective of tensors.
///
/// NCCL makes float sums, in its own order, unless SumOrder::ranks is requested. In that case, and for contributions in
/// a narrower type, contributions are exchanged and summed here in rank order: each is rounded once, and results are
/// bit-identical with all other backends. An all_to_all is one send and one receive for each peer, in one group; the
/// queue copies this rank's own piece.
void enqueue_collective(const NcclLane& lane, const Transfer& transfer);

}  // namespace fsdp::comm
