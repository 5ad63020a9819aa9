// SPDX-License-Identifier: Apache-2.0
/// @file
/// The core of Nccl: one rank, with element types and device erased.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <tessera/comm/backend.hpp>
#include <tessera/comm/nccl_table.hpp>
#include <tessera/comm/peer_watch.hpp>
#include <tessera/comm/poll.hpp>
#include <tessera/comm/queued_core.hpp>

namespace fsdp::comm {

class NcclLink;

/// How a rank's start began.
struct NcclStart {
  Clock::time_point began = Clock::now();  ///< Options::start_deadline counts from here
  /// Hears the failures of other ranks; null: only those that NCCL reports, which are none on the same machine.
  std::shared_ptr<PeerWatch> watch = nullptr;
};

/// One rank. Collectives of tensors are enqueued when `start` returns. Small host values are staged through device
/// memory, and `start` blocks until they have arrived.
class NcclRank {
 public:
  static constexpr std::string_view queue_name = "nccl";
  /// Device scratch: `staging_bytes` for exchanged contributions and accumulating sums, `value_bytes` for small values.
  static constexpr std::int64_t staging_bytes = 32 << 20;
  static constexpr std::int64_t value_bytes = 64 << 10;

  NcclRank(const nccl::Table& table, const nccl::Seat& seat, const Options& options, const NcclStart& start);
  /// See Nccl::adopt.
  static std::unique_ptr<NcclRank> adopt(const nccl::Table& table, nccl::Comm host, const nccl::Settings& settings,
                                         const Options& options);
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;
  ~NcclRank();

  int rank() const { return monitor_.rank; }
  int size() const { return size_; }
  Monitor& monitor() { return monitor_; }
  static std::int64_t scratch_bytes_for(int) { return staging_bytes + value_bytes; }
  std::int64_t scratch_bytes() const { return scratch_bytes_for(size_); }

  /// Sets the queue and allocates scratch. Call it before the first transfer.
  void move_with(AnyQueue queue);
  Transfer& prepare() { return transfer_; }
  Ticket start();
  bool test(Ticket);  ///< whether the host's part is complete: always true; throws if the communicator has failed
  void abandon(Ticket) noexcept;
  std::unique_ptr<NcclRank> split(int color);

  void after(AnyEvent event) { after_.push_back(std::move(event)); }
  /// Returns the transfer's completion event, or a later one if the transfer is old; null for small values, which are
  /// complete.
  AnyEvent done(Ticket ticket) const {
    return next_ - ticket > done_.size() ? last_done_ : done_[ticket % done_.size()];
  }
  void wait_for(const AnyEvent& event);
  std::shared_ptr<std::byte> shared_memory(std::int64_t bytes);
  std::shared_ptr<std::byte> register_memory(const std::shared_ptr<std::byte>& memory, std::int64_t bytes);

 private:
  NcclRank(std::shared_ptr<NcclLink> link, int rank, int size, const nccl::Settings& settings, const Options& options);
  void move_values();
  void gather_values(const std::byte* mine, std::byte* all, std::int64_t bytes);
  void broadcast_value(std::byte* data, std::int64_t bytes);

  std::shared_ptr<NcclLink> link_;  ///< shared with registered memory, which may outlive the rank
  int size_;
  nccl::Settings settings_;
  int exceptions_;  ///< number of exceptions in flight at construction
  Monitor monitor_;
  Transfer transfer_;
  AnyQueue queue_;
  std::shared_ptr<std::byte> scratch_;
  std::shared_ptr<std::byte> values_;  ///< host copy of small values
  std::vector<AnyEvent> after_;        ///< events that the next transfer of tensors starts after
  std::vector<AnyEvent> done_;         ///< completion events of the last transfers, by ticket modulo the size
  AnyEvent last_done_;                 ///< the latest completion event; implies completion of all earlier transfers
  Ticket next_ = 0;
};

}  // namespace fsdp::comm
